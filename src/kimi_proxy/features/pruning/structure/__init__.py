"""What a text is made of, by its kind: code, logs or docs."""
