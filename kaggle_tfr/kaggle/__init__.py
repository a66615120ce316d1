"""Kaggle: metadata, kernels, upload."""
