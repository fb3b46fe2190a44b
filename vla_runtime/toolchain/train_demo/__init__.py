"""Trains the demo policy from nothing: collect, train, correct (DAgger), export, evaluate."""
