"""The version of the package, and the address of its repository."""

__version__ = "0.2.0"
