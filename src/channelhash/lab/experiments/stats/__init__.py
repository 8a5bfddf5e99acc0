"""Intervals and tests of differences between methods."""
