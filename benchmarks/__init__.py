"""Measure the figures of docs/benchmarks.md: python -m benchmarks.NAME."""
