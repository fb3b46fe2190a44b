"""The terminal screen for operators: who is in command, and why."""
