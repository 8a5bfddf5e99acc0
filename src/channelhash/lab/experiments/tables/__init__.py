"""Tables of an experiment's results."""
