"""Our znodes between those of Java Curator, on one server."""
