"""Every figure of the README, from one command each: python -m benchmarks.NAME [--json]."""
