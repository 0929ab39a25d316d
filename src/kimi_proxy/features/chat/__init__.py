"""What is computed for chat requests: their sessions, stages, prompt caches, context windows and memory."""
