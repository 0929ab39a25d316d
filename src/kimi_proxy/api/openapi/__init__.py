"""Machine-readable descriptions: OpenAPI for HTTP, and JSON Schemas for events, exports and recordings."""
