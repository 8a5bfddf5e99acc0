"""Runs: train, evaluate and extend models, each in a folder of its own."""
