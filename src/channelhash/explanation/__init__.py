"""Explain why a pair of items matches: its bits, the labels that go with them, the parts that flip them."""

from channelhash.explanation.api import Explanation, MapSettings, explain

__all__ = ["Explanation", "MapSettings", "explain"]
