"""`vla demo`: the real nodes around a simulated arm, from the first frame to a report."""
