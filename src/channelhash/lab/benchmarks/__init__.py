"""Measurements that anyone can repeat: our code and an alternative side by side in one process."""
