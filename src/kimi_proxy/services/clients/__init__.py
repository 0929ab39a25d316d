"""Connecting agents: by changing their files, or by running one with tools."""
