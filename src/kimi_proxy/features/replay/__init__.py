"""A recorded conversation, played again against a model of its provider."""
