"""Measurements that anyone can repeat: ours and an alternative side by side in one process."""
