"""Settings, errors, JSON, text and protocol formats: what every other layer uses."""
