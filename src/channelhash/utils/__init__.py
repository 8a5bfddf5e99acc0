"""One idea a file, nothing of hashing."""
