"""The control core: pure code that knows no ROS, no clock and no thread."""
