"""Adapters to the outside world."""
