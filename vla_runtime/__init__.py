"""Vision-Language-Action policies on real robots, over ROS 2."""
