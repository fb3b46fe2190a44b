"""What a deployment engineer runs off the robot: train, export, measure."""
