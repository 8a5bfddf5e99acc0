"""Optional libraries, which a plain installation does not include."""

import importlib
from typing import Any

from channelhash.errors import InputError


def library(module: str, extra: str) -> Any:
    """Import an optional module.

    Args:
        module: its import name.
        extra: the extra of this package that installs it.

    Raises:
        InputError: it is not installed, or cannot be imported.

    >>> library("json", "exchange").dumps(1)
    '1'
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(f"{module} cannot be imported ({error}): pip install 'channelhash[{extra}]'") from None
