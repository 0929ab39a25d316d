"""Worker processes for work that must be killable: the pool that starts and stops them, and what runs inside one."""
