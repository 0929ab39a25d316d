"""The learned scorer: trees that say from a line's signals how likely it answers the goal."""
