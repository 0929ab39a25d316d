"""What talks to the outside."""
