"""Named settings: ``published: true``, the authors' (``docs/reference/baselines.md``), and ``recommended: true``."""

from collections.abc import Mapping
from typing import Any

from channelhash.errors import InputError

#: Name of a loss -> the settings with which it is its authors'; empty where its defaults are.
PUBLISHED: Mapping[str, Mapping[str, Any]] = {
    "dsch": {},
    "sch": {},
    "sch-original": {},
    "tdsrdh": {},
    "dcmh": {"n_train": 10_000},
    "hashnet": {"weighted": False},
    "idhn": {},
    "csq": {"squared": True, "lambda_p": 0.2},
    "orthohash": {},
    "greedyhash": {},
    "hyp2": {"beta": 0.8, "dsph": True},
    "dnph": {},
    "qsmi": {},
    "dcgh": {},
    "talr": {"alpha": 0.5, "bin_width": 2},
}


#: Losses that the weights were measured with.
RECOMMENDED = ("dsch", "sch", "bsch")


def recommended_weights(n_bits: int) -> dict[str, float]:
    """Return κ_q of the quantisation error, and the weight of the direct AP term, for codes of ``n_bits`` bits
    (``docs/reference/results/benchmark.md``).

    >>> recommended_weights(32)
    {'kappa_q': 0.3, 'average_precision': 32.0}
    """
    return {"kappa_q": 0.3, "average_precision": float(n_bits)}


def expand_settings(name: str, settings: Mapping[str, Any], n_bits: int) -> dict[str, Any]:
    """Return ``settings`` without the keys ``published`` and ``recommended``; where one is true, with the settings that
    it stands for beside those given.

    >>> expand_settings("talr", {"published": True, "bin_width": 1}, 64)
    {'alpha': 0.5, 'bin_width': 1}
    >>> expand_settings("sch", {"recommended": True, "kappa_q": 0.1}, 64)
    {'kappa_q': 0.1, 'average_precision': 64.0}
    """
    rest = dict(settings)
    switches = {key: rest.pop(key, False) for key in ("recommended", "published")}
    for key, switch in switches.items():
        if not isinstance(switch, bool):
            raise InputError(f"loss.{key}: is true or false, got {switch!r}")
    if not any(switches.values()):
        return rest
    if all(switches.values()):
        raise InputError("loss.recommended: the weights are ours or the authors'; leave out it or loss.published")
    if switches["published"]:
        if name not in PUBLISHED:
            raise InputError(
                f"loss.published: nobody else has published {name!r}; leave it out, or take {', '.join(PUBLISHED)}"
            )
        return {**PUBLISHED[name], **rest}
    if name not in RECOMMENDED:
        raise InputError(
            f"loss.recommended: is not known for {name!r}; set it to false, or take {', '.join(RECOMMENDED)}"
        )
    return {**recommended_weights(n_bits), **rest}
