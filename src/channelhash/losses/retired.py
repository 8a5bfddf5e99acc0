"""What left the package, and what a configuration of version 0.1 that names it is told."""

from collections.abc import Collection, Mapping
from typing import Any

from channelhash.errors import InputError

_WHY = "left the package, as it gained nothing (docs/reference/results/earlier.md); version 0.1 reads such a run"
#: Name of a loss -> the loss to take instead.
_LOSSES = {"sch-shaped": "sch"}
#: Keys of the section ``loss``: weights of hard negatives, of balanced bits, and samples of earlier batches.
_KEYS = ("hardness", "balance", "memory")


def check_not_retired(name: str) -> None:
    """Check that no loss that left the package is asked for.

    >>> check_not_retired("sch")

    Raises:
        InputError: ``name`` is one; the line says which loss to take.
    """
    if name in list(_LOSSES):  # what a configuration names may be anything, and need not have a hash
        raise InputError(f"loss.name: {name!r} {_WHY}; take {_LOSSES[name]}")


def without_retired(settings: Mapping[str, Any], own: Collection[str] = ()) -> dict[str, Any]:
    """Return ``settings`` of a loss without the keys that left the package, which did nothing at 0.

    Args:
        settings: keys of the section ``loss``.
        own: settings of the loss itself; one that has such a name is meant, and stays.

    >>> without_retired({"tau": 1.0, "hardness": 0.0, "memory": 0})
    {'tau': 1.0}

    Raises:
        InputError: one of these keys is not 0.
    """
    gone = [key for key in _KEYS if key in settings and key not in own]
    for key in gone:
        if settings[key] != 0:
            raise InputError(f"loss.{key}: {_WHY}; set it to 0, got {settings[key]!r}")
    return {key: value for key, value in settings.items() if key not in gone}
