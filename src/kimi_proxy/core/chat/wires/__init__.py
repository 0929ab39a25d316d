"""The wire formats, a module each."""
