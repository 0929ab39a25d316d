"""What differs by client."""
