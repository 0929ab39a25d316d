"""The structure of a text, by its kind: code, logs or docs."""
