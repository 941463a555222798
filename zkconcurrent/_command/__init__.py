"""The command `zkconcurrent`, for people who have a shell and a URL.

Each command imports only what it needs, as late as it can: `run` must start its own command as soon as it holds the
lock.
"""
