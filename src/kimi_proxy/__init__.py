"""kimi-proxy keeps the lines that matter in what coding agents read, and never loses the rest."""

__version__ = "0.1.0"
