"""Grids of runs, and the tables and plots made of them."""
