"""`vla selftest`: one page that says whether this machine is fit to run a policy, and why."""
