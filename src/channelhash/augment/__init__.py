"""Progressive image augmentation, the two tables of the paper."""
