"""The life of a chat request, in the order of its stages."""
