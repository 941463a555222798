"""The recipes of a Queue: it puts, takes, claims and manages items."""
