"""Our own tool, called by the model in the middle of an answer and answered before the client hears of it.

The call is hidden, the provider is asked again with what was recovered, and its answer goes on where the first one
stopped: for the client it is one answer."""
