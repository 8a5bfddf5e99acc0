"""Why a pair of items matches: bits, what they mean, and which parts of a picture or words flip them."""

from channelhash.explanation.api import explain
from channelhash.explanation.explanation import Explanation, MapSettings

__all__ = ["Explanation", "MapSettings", "explain"]
