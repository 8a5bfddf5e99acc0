"""Plots of an experiment's results."""
