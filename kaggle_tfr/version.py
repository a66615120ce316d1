"""The version of the package, and the address of its repository."""

__version__ = "0.2.0"
# Kernels link to it. Empty: the repository has no public address yet.
REPOSITORY = ""
