"""Bundles, observations and the policies that turn them into chunks."""
