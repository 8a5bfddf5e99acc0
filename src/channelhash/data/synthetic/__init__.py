"""The embedded data set: drawn scenes with hashtags, written to disk as MIRFLICKR-25k is and read by its loader."""

import io
import json
from collections.abc import Callable
from pathlib import Path

from PIL import Image

from channelhash.data.mirflickr import load_mirflickr
from channelhash.data.records import Records
from channelhash.data.synthetic.hashtags import write_hashtags
from channelhash.data.synthetic.scenes import LABELS, draw_scene
from channelhash.errors import InputError
from channelhash.utils.files import locked, remove_leftovers, write_text
from channelhash.utils.seeds import generator

_FORMAT = 1  # part of the marker: raise it when the drawing changes
_README = """Annotations of the embedded data set of channelhash, in the layout of the MIRFLICKR-25k annotations v080.
One file a label with the number of a picture a line; in *_r1.txt those where the label is what the picture shows first.
"""


def synthesize(
    root: Path, n_images: int = 3000, seed: int = 0, progress: Callable[[int, int], None] | None = None
) -> None:
    """Draw ``n_images`` pictures with labels and hashtags into ``root`` in MIRFLICKR-25k's own layout.

    ``mirflickr/im1.jpg …``, ``mirflickr/meta/tags/tags1.txt …`` (lower-case), ``mirflickr/meta/tags_raw/…`` (as
    typed) and ``annotations/<label>.txt``. Every picture is a function of (seed, number) alone. An interrupted call
    goes on where it was, a finished folder is left as it is, and a second process waits for the first.

    Args:
        root: folder to write to.
        n_images: number of pictures, at least 1.
        seed: of everything drawn.
        progress: called with (pictures there, n_images).

    Raises:
        InputError: ``root`` holds a set with other settings, or something else.
    """
    if n_images < 1:
        raise InputError(f"images: {n_images} asked for; a data set has at least 1")
    with locked(root.parent / f".{root.name}.lock"):  # beside it: a new folder is empty
        _draw_all(root, n_images, seed, progress)


def _draw_all(root: Path, n_images: int, seed: int, progress: Callable[[int, int], None] | None) -> None:
    marker, wanted = root / "synthetic.json", {"format": _FORMAT, "n_images": n_images, "seed": seed}
    remove_leftovers(marker)
    if marker.exists():
        found = json.loads(marker.read_text())
        if {key: found.get(key) for key in wanted} != wanted:
            raise InputError(f"{root}: holds an embedded data set made with {found}, not {wanted}; use another folder")
        if found["finished"]:
            return
    elif root.exists() and any(root.iterdir()):
        raise InputError(f"{root}: is not empty and holds no embedded data set; use another folder")
    write_text(marker, json.dumps({**wanted, "finished": False}))

    pictures, meta = root / "mirflickr", root / "mirflickr" / "meta"
    for folder in (pictures, meta / "tags", meta / "tags_raw", root / "annotations"):
        folder.mkdir(parents=True, exist_ok=True)
    carried: dict[str, list[int]] = {label: [] for label in LABELS}
    shown_first: dict[str, list[int]] = {label: [] for label in LABELS}
    for number in range(1, n_images + 1):
        picture, labels = draw_scene(generator(seed, "scene", number))
        for label in labels:
            carried[label].append(number)
        if labels:
            shown_first[min(labels)].append(number)
        if not (pictures / f"im{number}.jpg").exists():
            tags = write_hashtags(labels, generator(seed, "hashtags", number))
            (meta / "tags_raw" / f"tags{number}.txt").write_text("".join(f"{tag}\n" for tag in tags))
            (meta / "tags" / f"tags{number}.txt").write_text("".join(f"{tag.lower()}\n" for tag in tags))
            _write_jpeg(pictures / f"im{number}.jpg", picture)  # last: its being there means the sample is complete
        if progress:
            progress(number, n_images)
    for label in LABELS:
        for suffix, numbers in (("", carried[label]), ("_r1", shown_first[label])):
            write_text(root / "annotations" / f"{label}{suffix}.txt", "".join(f"{number}\n" for number in numbers))
    write_text(root / "annotations" / "README.txt", _README)
    write_text(marker, json.dumps({**wanted, "finished": True}))


def load_synthetic(
    root: Path = Path("data/synthetic"),
    n_images: int = 3000,
    data_seed: int = 0,
    raw_tags: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> Records:
    """The embedded data set, drawn into ``root`` first if it is not there.

    The threshold of MIRFLICKR's tag filter is scaled to the number of pictures: a tag counts as frequent from
    20 / 25,000 of them on, at least 2.

    Args:
        root: folder of the set.
        n_images: number of pictures.
        data_seed: of everything drawn.
        raw_tags: hashtags as typed, with their casings, rather than lower-case.
        progress: called with (pictures there, n_images) while they are drawn.
    """
    synthesize(root, n_images, data_seed, progress)
    return load_mirflickr(root, min_tag_count=max(2, round(n_images * 20 / 25000)), raw_tags=raw_tags)


def _write_jpeg(path: Path, picture: Image.Image) -> None:
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=90)
    temporary = path.with_suffix(".tmp")
    temporary.write_bytes(buffer.getvalue())
    temporary.replace(path)
