"""Where originals are kept."""
