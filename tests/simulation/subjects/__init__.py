"""One file for each primitive: threads that use it at random, and the user's expectations."""
