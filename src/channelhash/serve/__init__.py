"""`channelhash serve`: a store over HTTP, with a search page."""
