"""One HTML page about a recorded run, with everything inside it."""
