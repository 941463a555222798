"""The only package that imports kazoo; it uses kazoo's connection directly."""
