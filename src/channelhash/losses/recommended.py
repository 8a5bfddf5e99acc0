"""The weights that we recommend beside a channel: ``recommended: true`` in a configuration.

Measured in ``docs/explanation/which-loss.md``.
"""

from collections.abc import Mapping
from typing import Any

from channelhash.errors import InputError
from channelhash.losses.published import switched

#: Losses that the weights were measured with.
RECOMMENDED = ("dsch", "sch", "bsch")


def recommended_weights(n_bits: int) -> dict[str, float]:
    """Return κ_q of the quantisation error, and the weight of the direct AP term, for codes of ``n_bits`` bits.

    >>> recommended_weights(32)
    {'kappa_q': 0.3, 'average_precision': 8.0}
    """
    return {"kappa_q": 0.3, "average_precision": n_bits / 4}


def with_recommended(name: str, settings: Mapping[str, Any], n_bits: int) -> dict[str, Any]:
    """Return ``settings`` without the key ``recommended``; where it is true, with our weights beside those given.

    >>> with_recommended("sch", {"recommended": True, "kappa_q": 0.1}, 64)
    {'kappa_q': 0.1, 'average_precision': 16.0}

    Raises:
        InputError: ``recommended`` is neither true nor false, stands beside ``published``, or `RECOMMENDED` has no such
            loss.
    """
    wanted, given = switched(settings, "recommended")
    if not wanted:
        return given
    if given.get("published"):
        raise InputError(
            "loss.recommended: the weights are either ours or the authors'; leave out it or loss.published"
        )
    if name not in RECOMMENDED:
        raise InputError(
            f"loss.recommended: is not known for {name!r}; set it to false, or take {', '.join(RECOMMENDED)}"
        )
    weights = {key: value for key, value in recommended_weights(n_bits).items() if key not in given}
    return {**given, **weights}
