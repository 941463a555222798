"""Models of the primitives: Hypothesis looks for calls and faults after which a primitive differs from its model."""
