"""Encode and evaluate collections that do not fit on one machine."""
