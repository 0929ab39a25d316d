"""What does: features and the outside together."""
