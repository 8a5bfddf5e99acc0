"""The store in a schema of PostgreSQL, with pgvector."""
