"""Explain why a pair of items matches: its bits, the labels that go with them, the parts that flip
them.
"""

from channelhash.explanation.api import Explanation, explain
from channelhash.explanation.occlusion import MapSettings

__all__ = ["Explanation", "MapSettings", "explain"]
