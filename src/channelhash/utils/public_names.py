"""Public names of a package that are loaded on first use."""

import importlib
from collections.abc import Mapping
from typing import Any


def load_name(package: str, modules: Mapping[str, str], name: str) -> Any:
    """Return a public name of a package: an object of another module, or a module of its own.

    Args:
        package: the package that is asked for the name.
        modules: name -> the module that defines it.
        name: the name.

    Raises:
        AttributeError: the package has no such name.

    >>> load_name("mine", {"sqrt": "math"}, "sqrt")(9)
    3.0
    >>> load_name("os", {"path": "os.path"}, "path").join("a", "b")
    'a/b'
    """
    if name not in modules:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    module = importlib.import_module(modules[name])
    return module if modules[name] == f"{package}.{name}" else getattr(module, name)
