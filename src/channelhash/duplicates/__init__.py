"""Near-duplicates in a store: groups, which item to keep, and what people decide of them."""
