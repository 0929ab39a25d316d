"""The words every other layer speaks."""
