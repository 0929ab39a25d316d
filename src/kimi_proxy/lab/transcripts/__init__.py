"""Readers of what coding agents write to disk about their sessions: one module per agent, one shape for all."""
