"""The store in a Milvus collection."""
