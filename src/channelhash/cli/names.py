"""``channelhash list``"""

import ast
import re
import sys
from collections.abc import Callable
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path

import typer

from channelhash.cli.options import AsJson
from channelhash.cli.output import print_json, print_names


class Kind(StrEnum):
    """What can be listed."""

    losses = "losses"
    models = "models"
    encoders = "encoders"
    data = "data"
    stores = "stores"
    experiments = "experiments"


def names(kind: Kind = typer.Argument(..., help="What to list."), as_json: AsJson = False) -> None:
    """List the losses, models, encoders, kinds of data, stores or experiments that a configuration or command may name.

    Example: channelhash list losses
    """
    found = _LISTS[kind]()
    if as_json:
        print_json(found)
    else:
        print_names(found)


def _losses() -> dict[str, str]:
    return _registered("channelhash.losses", "LOSSES")


def _models() -> dict[str, str]:
    return _registered("channelhash.models.registry", "MODELS")


def _encoders() -> dict[str, str]:
    from channelhash.models.description import ENCODER_FORMS

    return {word: meaning.replace("`", "") for word, meaning in ENCODER_FORMS.items()}


def _data() -> dict[str, str]:
    from channelhash.data import DATA_KINDS

    return {name: _first_line(sys.modules[kind.load.__module__].__doc__ or "") for name, kind in DATA_KINDS.items()}


def _stores() -> dict[str, str]:
    return {
        "FOLDER": "made by index create; a folder of photographs is searched as it is",
        "RUN": "a run's folder: its retrieval set, to be read only",
        "FILE.parquet": "codes, to be read only",
        "postgresql://ADDRESS": "a schema of PostgreSQL with pgvector: postgresql://user@host/database?store=name",
        "milvus+ADDRESS": "a collection of Milvus: milvus+http://host:19530/name",
    }


def _experiments() -> dict[str, str]:
    from channelhash.lab.experiments.studies import EXPERIMENTS, __file__

    found = {}
    for name, file in EXPERIMENTS.items():
        calls = [
            node for node in ast.walk(_parsed(Path(__file__).with_name(f"{file}.py"))) if isinstance(node, ast.Call)
        ]
        record = next(call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "Experiment")
        found[name] = str(next(ast.literal_eval(word.value) for word in record.keywords if word.arg == "title"))
    return found


_LISTS: dict[Kind, Callable[[], dict[str, str]]] = {
    Kind.losses: _losses,
    Kind.models: _models,
    Kind.encoders: _encoders,
    Kind.data: _data,
    Kind.stores: _stores,
    Kind.experiments: _experiments,
}


def _registered(module: str, registry: str) -> dict[str, str]:
    """Return what a registry names, with the first line of the docstring of each entry's file.

    The files are read, not imported: they need PyTorch, seconds to load where it is installed.

    >>> _registered("channelhash.losses", "LOSSES")["rsch"]
    "RSCH: root-mean-square semantic channels, this project's own objective."
    """
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    file, files, entries = Path(spec.origin), dict[str, str](), dict[str, ast.expr]()
    for node in _parsed(file).body:
        if isinstance(node, ast.ImportFrom):
            files |= {alias.name: str(node.module).rpartition(".")[2] for alias in node.names}
        if (
            isinstance(node, ast.AnnAssign)
            and ast.unparse(node.target) == registry
            and isinstance(node.value, ast.Dict)
        ):
            entries = {
                ast.literal_eval(key): value
                for key, value in zip(node.value.keys, node.value.values, strict=True)
                if key
            }
    found = {}
    for name, entry in entries.items():
        imported = entry.args[0] if isinstance(entry, ast.Call) else entry
        described = _parsed(file.with_name(f"{files[ast.unparse(imported)]}.py"))
        found[name] = _first_line(ast.get_docstring(described) or "")
    return found


def _parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def _first_line(docstring: str) -> str:
    """Return the first line of a module's docstring in plain text, without the name that it begins with.

    >>> _first_line("``sch``: Semantic channels (Eq. 3, ``protocol.md``).")
    'Semantic channels.'
    """
    text = docstring.partition("\n")[0]
    text = text.partition("``: ")[2] if text.startswith("``") else text
    return re.sub(r" \([^()]*``protocol\.md``[^()]*\)", "", text).replace("`", "")
