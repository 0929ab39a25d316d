"""Connect agents: by changes to their files, or for one run with tools beside it."""
