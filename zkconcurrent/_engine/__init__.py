"""The engine: one session for each client, the calls that run recipes on it, and what this process holds."""
