"""A recorded run again, without ROS: bit for bit from its trace, or anew on its inputs with other settings."""
