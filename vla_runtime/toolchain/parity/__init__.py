"""Parity: does an engine still do what the reference does? Stages, ticks, trajectories, closed loop."""
