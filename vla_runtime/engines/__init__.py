"""Engines: one protocol, several runtimes, named and shaped tensors."""
