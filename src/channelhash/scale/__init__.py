"""The same work on collections that do not fit on one machine."""
