"""A simulated arm, its controller, and closed loops on simulated time."""
