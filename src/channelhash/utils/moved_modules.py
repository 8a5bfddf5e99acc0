"""Old import paths of version 0.1: they work for one release and warn with the new path."""

import importlib
import json
import sys
import warnings
from collections.abc import Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

_PREFIX = "channelhash."


def install() -> None:
    """Make ``import channelhash.codeset`` and the other old paths find the modules that took their places.

    The finder is asked last, so an import that exists costs nothing. Call again without effect.
    """
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        table = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
        sys.meta_path.append(_Finder(table["modules"], table["names"], table["removed"]))


class _Finder(MetaPathFinder, Loader):
    """Load an old module as a view of the new one.

    Args:
        modules: old path -> new path, both below ``channelhash``.
        names: old path of a name -> its name in the new module, where that changed too.
        removed: old path of a module that no other one took the place of -> the page that says why.
    """

    def __init__(self, modules: Mapping[str, str], names: Mapping[str, str], removed: Mapping[str, str]) -> None:
        self.modules, self.names, self.removed = modules, names, removed

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        old = fullname.removeprefix(_PREFIX)
        if old == fullname:
            return None
        if page := self.removed.get(old):
            raise ModuleNotFoundError(f"{fullname} left the package ({page}); version 0.1 has it", name=fullname)
        if (new := self.modules.get(old)) is None:
            return None
        message = f"{fullname} has moved to {_PREFIX}{new}; the old path goes with the next release"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return ModuleSpec(fullname, self, is_package=True)

    def exec_module(self, module: ModuleType) -> None:
        old = module.__name__.removeprefix(_PREFIX)
        new = importlib.import_module(_PREFIX + self.modules[old])

        def forward(name: str) -> Any:
            return getattr(new, self.names.get(f"{old}.{name}", name))

        module.__doc__ = new.__doc__
        module.__getattr__ = forward  # type: ignore[method-assign]  # PEP 562
