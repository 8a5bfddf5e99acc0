"""The store in a folder: SQLite, and snapshots of codes."""
