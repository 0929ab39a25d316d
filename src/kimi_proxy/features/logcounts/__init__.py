"""What the logs of agents tell about tokens."""
