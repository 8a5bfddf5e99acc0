"""Routes of the HTTP API, one file a topic."""
