"""Other forms of the chat APIs: those of clouds, and Ollama's."""
