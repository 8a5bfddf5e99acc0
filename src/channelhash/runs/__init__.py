"""Runs: train, evaluate, extend and distil models, each in a folder of its own."""
