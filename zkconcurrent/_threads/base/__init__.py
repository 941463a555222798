"""What several primitives share."""
