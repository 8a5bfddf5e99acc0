"""`channelhash serve`: a store over HTTP, and a page to search it with."""

from channelhash.serve.app import create_app
from channelhash.serve.limits import Limits

__all__ = ["Limits", "create_app"]
