"""Peers on the same work in the same run: what `vla bench policy --against` measures."""
