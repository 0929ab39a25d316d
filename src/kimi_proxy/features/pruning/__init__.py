"""Choosing the lines that matter for a goal."""
