"""Read the items of a store: a folder of images, a table with all its columns, features, or a configuration's data."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from channelhash.data.captions import match_captions, read_captions
from channelhash.data.collection import load_collection
from channelhash.data.folder import find_images, item_ids, load_any
from channelhash.data.records import Records
from channelhash.data.tabular_files import ENDINGS
from channelhash.errors import InputError
from channelhash.indexing.photo_source import PhotoSource
from channelhash.indexing.table_columns import further_columns
from channelhash.search.items import Value


@dataclass(frozen=True)
class Source:
    """Items to index.

    Attributes:
        records: the items.
        metadata: for each item, as far as known: ``text``, ``image`` (an absolute path), ``labels`` and the other
            columns of a table.
        photos: what was read, if it is a folder of images.
        captions: of a folder, the captions of each image, if a file of them was given; an image may have none.
        unread: of a folder, paths in it that cannot be read now: what lies there is unknown, not gone.

    >>> records = Records(("a",), {"text": ("a dog",)}, np.zeros((1, 0), dtype=bool), ())
    >>> Source(records, [{"text": "a dog"}]).folder is None
    True
    """

    records: Records
    metadata: list[dict[str, Value]]
    photos: PhotoSource | None = None
    captions: list[tuple[str, ...]] | None = None
    unread: tuple[str, ...] = ()

    @property
    def folder(self) -> Path | None:
        """The folder of the images, if the source is one."""
        return self.photos.folder if self.photos else None


def with_modalities(source: Source, modalities: Sequence[str]) -> Source:
    """Return the source with what a model of these modalities encodes, in their order.

    Raises:
        InputError: the source has none of them.

    >>> records = Records(("a",), {"text": ("a dog",)}, np.zeros((1, 0), dtype=bool), ())
    >>> with_modalities(Source(records, [{}]), ["image"])
    Traceback (most recent call last):
    channelhash.errors.InputError: the items have texts, this model encodes images; there is nothing to encode
    """
    items = source.records.items
    encoded = {modality: items[modality] for modality in modalities if modality in items}
    if not encoded:
        available, encodes = " and ".join(items), " and ".join(modalities)
        raise InputError(f"the items have {available}s, this model encodes {encodes}s; there is nothing to encode")
    captions = source.captions if "text" in modalities else None
    return replace(source, records=replace(source.records, items=encoded), captions=captions)


def read_source(
    path: Path, root: Path | None = None, exclude: Sequence[str] = (), captions: Path | None = None
) -> Source:
    """Return the items to index; bad rows of a table are left out and listed in ``records.problems``.

    Args:
        path: a folder of images (any depth, hidden files left out; ids are paths relative to it), a table, a file of
            features, or a YAML configuration, whose section ``data`` is read.
        root: for a table, the folder of its images.
        exclude: for a folder, patterns of paths to leave out, see `path_patterns.match_any`.
        captions: for a folder, a file of captions, see `read_captions`.

    Raises:
        InputError: there is no such file or folder, no image or no usable row in it; ``root`` is given without a table,
            or ``exclude`` or ``captions`` without a folder; or the captions cannot be read.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     table = Path(folder, "items.csv")
    ...     _ = table.write_text("id,text,year\\na,a dog,2019\\n")
    ...     read_source(table).metadata
    [{'text': 'a dog', 'year': 2019}]
    """
    is_table = path.suffix.lower() in ENDINGS and not path.is_dir()
    if root is not None and not is_table:
        raise InputError(f"--root: goes with a table, {path} is none; leave it out")
    if path.is_dir():
        return _folder(path, exclude, captions)
    if exclude or captions is not None:
        raise InputError(f"--{'exclude' if exclude else 'captions'}: goes with a folder, {path} is none; leave it out")
    if path.suffix.lower() in (".yaml", ".yml"):
        from channelhash.config import read_config  # losses and models, which plain folders do without

        records = load_collection(read_config(path).sources).records
    else:
        records = load_any(path, root, skip_bad=True)
    further: list[dict[str, Value]] = [{}] * len(records)
    if is_table:
        records, further = further_columns(path, records)
    metadata = [values | columns for values, columns in zip(_metadata(records), further, strict=True)]
    return Source(records, metadata)


def _folder(root: Path, exclude: Sequence[str], captions: Path | None) -> Source:
    found, where = find_images(root, exclude), os.path.abspath(root)
    names, ids = found.names, item_ids(found.names)
    texts, lost = (None, []) if captions is None else match_captions(read_captions(captions), names, captions)
    metadata: list[dict[str, Value]] = [{"image": os.path.join(where, name)} for name in names]
    for values, several in zip(metadata, texts or (), strict=False):
        if several:
            values["text"] = "\n".join(several)
    images = tuple(Path(str(values["image"])) for values in metadata)
    labels = np.zeros((len(names), 0), dtype=bool)
    problems = (*found.problems, *lost)
    records = Records(tuple(ids), {"image": images}, labels, (), found.skipped, problems)
    return Source(records, metadata, PhotoSource(Path(where), captions, tuple(exclude)), texts, found.unread)


def _metadata(records: Records) -> list[dict[str, Value]]:
    """Return the metadata that the records hold."""
    texts, images = records.display_values("text"), records.display_values("image")
    metadata: list[dict[str, Value]] = []
    for row, labels in enumerate(records.labels):
        values: dict[str, Value] = {}
        if texts is not None:
            values["text"] = texts[row]
        if images is not None:
            values["image"] = os.path.abspath(images[row])
        if records.label_names:
            values["labels"] = [name for name, has in zip(records.label_names, labels, strict=True) if has]
        metadata.append(values)
    return metadata
