"""The version, in its one place: setup.cfg and the package both read it here."""

__version__ = "0.1.0.dev0"
