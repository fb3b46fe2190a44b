"""The lifecycle nodes, one process each."""
