"""Compare pictures: whether one is a copy of another, whatever their codes are."""
