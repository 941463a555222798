"""The engine: one session for each client, the calls that run recipes in it, and the holds of this process."""
