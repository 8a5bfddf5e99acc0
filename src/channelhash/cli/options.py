"""Arguments and options that several commands share, declared once."""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Modality(StrEnum):
    """Modality of the codes to search, or to search with."""

    image = "image"
    text = "text"


class Engine(StrEnum):
    """Engines that work through the shards of a large job."""

    local = "local"
    ray = "ray"


SavedModel = Annotated[Path, typer.Argument(help="A run's folder or a saved model.")]
SearchableStore = Annotated[
    str,
    typer.Argument(
        help="A store (see `index`), a run's folder (meaning its retrieval set), a file of codes, or the address of a "
        "Milvus collection."
    ),
]

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]
Device = Annotated[str, typer.Option(help="Device to compute on: auto, cpu, cuda, cuda:1, ...")]
EngineName = Annotated[
    Engine | None, typer.Option(help="Work through shards in this process (local, the default) or on a Ray cluster.")
]
Modalities = Annotated[
    list[str], typer.Option(help="Modality to include, such as image; all by default. May be repeated.")
]
Overrides = Annotated[
    list[str], typer.Option("--set", help="Override a configuration key: section.key=value. May be repeated.")
]
PictureFolder = Annotated[
    Path | None, typer.Option(help="Folder of pictures; by default pictures of 500 x 375 pixels are drawn.")
]
Quick = Annotated[
    bool, typer.Option("--quick", help="Use a small data set and few epochs: a trial, not results to quote.")
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue an interrupted run in the same folder.")]
Seed = Annotated[int, typer.Option(help="Random seed.")]
Sheet = Annotated[Path | None, typer.Option(help="Also draw the result as a PNG file with this name.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Skip bad rows; they are counted and listed.")]
StoreModel = Annotated[Path | None, typer.Option(help="Run or saved model that made the codes, if the store has none.")]
TableRoot = Annotated[Path | None, typer.Option(help="Folder that a table's picture paths are relative to.")]
Where = Annotated[str | None, typer.Option(help="Only items that pass a filter: \"label = 'dog' AND year > 2019\".")]
Workers = Annotated[
    int | None,
    typer.Option(
        min=1, help="With --engine ray: number of workers; by default one per core, or per GPU when encoding."
    ),
]


def read_overrides(settings: Sequence[str], skip_bad: bool) -> list[str]:
    """Return the configuration keys that ``--set`` and ``--skip-bad`` override.

    >>> read_overrides(["train.epochs=3"], skip_bad=True)
    ['train.epochs=3', 'data.skip_bad=true']
    """
    return [*settings, *(["data.skip_bad=true"] if skip_bad else [])]
