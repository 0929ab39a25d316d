"""What was saved, and what saving it cost."""
