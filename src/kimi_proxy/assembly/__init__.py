"""The composition root: the only place that knows every part, builds what lives, and ends it in the reverse order."""
