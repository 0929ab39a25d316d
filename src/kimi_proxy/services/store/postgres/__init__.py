"""The store in PostgreSQL, for several servers that answer for one address; installed with `kimi-proxy[team]`."""
