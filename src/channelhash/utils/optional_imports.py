"""Libraries that only some uses need, and that a plain installation leaves out."""

import importlib
from typing import Any

from channelhash.errors import InputError


def library(module: str, extra: str) -> Any:
    """The module, imported.

    Args:
        module: its import name.
        extra: the extra of this package that brings it.

    Raises:
        InputError: it is not installed, or cannot be imported.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(f"{module} cannot be imported ({error}): pip install 'channelhash[{extra}]'") from None
