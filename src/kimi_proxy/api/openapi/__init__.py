"""The HTTP interface for programs: an OpenAPI description, and JSON Schemas of what is sent, exported and recorded."""
