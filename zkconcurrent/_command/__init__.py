"""The command `zkconcurrent`, for people who have a shell and a URL.

Only what a command needs is imported, and late: `run` is to begin its own command as soon as it holds the lock.
"""
