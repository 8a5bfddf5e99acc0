"""`channelhash serve`: a store over HTTP, with a search page."""

from channelhash.serve.app import create_app
from channelhash.serve.service import Limits

__all__ = ["Limits", "create_app"]
