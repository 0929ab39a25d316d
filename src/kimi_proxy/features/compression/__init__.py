"""Old exchanges of a conversation give way to a summary: planned, worded and applied here, decided by the service."""
