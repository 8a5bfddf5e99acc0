"""What the authors of each loss published: ``published: true`` in a configuration.

Against which files and lines, and what no setting can equal, is in ``docs/reference/baselines.md``.
"""

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


def with_published(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``settings`` without the key ``published``; where it is true, with the authors' beside those given.

    >>> with_published("talr", {"published": True, "bin_width": 1})
    {'alpha': 0.5, 'bin_width': 1}

    Raises:
        InputError: ``published`` is neither true nor false, or `PUBLISHED` has no such loss.
    """
    wanted, given = switched(settings, "published")
    if not wanted:
        return given
    if name not in PUBLISHED:
        raise InputError(
            f"loss.published: nobody else has published {name!r}; leave it out, or take {', '.join(PUBLISHED)}"
        )
    return {**PUBLISHED[name], **given}


def switched(settings: Mapping[str, Any], key: str) -> tuple[bool, dict[str, Any]]:
    """Return whether the switch ``key`` is on, and the other settings of a loss.

    >>> switched({"published": True, "tau": 1.0}, "published")
    (True, {'tau': 1.0})

    Raises:
        InputError: the switch is neither true nor false.
    """
    wanted = settings.get(key, False)
    if not isinstance(wanted, bool):
        raise InputError(f"loss.{key}: is true or false, got {wanted!r}")
    return wanted, {name: value for name, value in settings.items() if name != key}
