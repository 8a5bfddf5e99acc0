"""Data sets that are made here: drawn scenes with hashtags, in MIRFLICKR-25k's layout, and features of label rows."""

import json
from pathlib import Path

import numpy as np

from channelhash.data.features import read_labels
from channelhash.data.mirflickr import load_mirflickr
from channelhash.data.records import Records
from channelhash.data.scenes import LABELS, draw_scene, write_hashtags
from channelhash.errors import InputError
from channelhash.utils.array_files import read_arrays
from channelhash.utils.files import locked, remove_leftovers, space_for, write_text
from channelhash.utils.progress import Progress, no_progress
from channelhash.utils.seeds import generator

_FORMAT = 2  # part of the marker: raise it when the drawing changes


def synthesize(root: Path, n_images: int = 3000, seed: int = 0, progress: Progress = no_progress) -> None:
    """Draw ``n_images`` images with labels and hashtags into ``root``, in the layout of MIRFLICKR-25k.

    ``mirflickr/im1.jpg …``, ``mirflickr/meta/tags/tags1.txt …`` (lower-case), ``mirflickr/meta/tags_raw/…`` (as
    typed) and ``annotations/<label>.txt``. Every image is a function of (seed, number) alone. An interrupted call is
    continued, a finished folder is left unchanged, and a second process waits for the first.

    Args:
        root: folder to write to.
        n_images: number of images, at least 1.
        seed: of all draws.
        progress: called with (images drawn, n_images).

    Raises:
        InputError: ``root`` holds a set with other settings, or something else.
    """
    if n_images < 1:
        raise InputError(f"images: {n_images} asked for; a data set has at least 1")
    with locked(root.parent / f".{root.name}.lock"):  # not inside: a new folder must be empty
        _draw_all(root, n_images, seed, progress)


def _draw_all(root: Path, n_images: int, seed: int, progress: Progress) -> None:
    marker, settings = root / "synthetic.json", {"format": _FORMAT, "n_images": n_images, "seed": seed}
    remove_leftovers(marker)
    if marker.exists():
        existing = json.loads(marker.read_text(encoding="utf-8"))
        if {key: existing.get(key) for key in settings} != settings:
            raise InputError(f"{root}: holds an embedded data set made with {existing}; use another folder")
        if existing["finished"]:
            return
    elif root.exists() and any(root.iterdir()):
        raise InputError(f"{root}: is not empty and holds no embedded data set; use another folder")
    write_text(marker, json.dumps({**settings, "finished": False}))

    images, meta = root / "mirflickr", root / "mirflickr" / "meta"
    for folder in (images, meta / "tags", meta / "tags_raw", root / "annotations"):
        folder.mkdir(parents=True, exist_ok=True)
    numbers: dict[str, list[int]] = {label: [] for label in LABELS}
    for number in range(1, n_images + 1):
        image, labels = draw_scene(generator(seed, "scene", number))
        for label in labels:
            numbers[label].append(number)
        if not (images / f"im{number}.jpg").exists():
            tags = write_hashtags(labels, generator(seed, "hashtags", number))
            typed = "".join(f"{tag}\n" for tag in tags)
            with space_for(meta):
                for kind, text in (("tags_raw", typed), ("tags", typed.lower())):
                    (meta / kind / f"tags{number}.txt").write_text(text, encoding="utf-8", newline="\n")
            temporary = images / f"im{number}.tmp"  # without atomic_path: 25,000 files are not flushed one by one
            with space_for(images):
                image.save(temporary, "JPEG", quality=90)
            temporary.replace(images / f"im{number}.jpg")  # last: the image exists only if the sample is complete
        progress(number, n_images)
    for label in LABELS:
        write_text(root / "annotations" / f"{label}.txt", "".join(f"{number}\n" for number in numbers[label]))
    write_text(marker, json.dumps({**settings, "finished": True}))


def load_synthetic(
    root: Path = Path("data/synthetic"),
    n_images: int = 3000,
    data_seed: int = 0,
    raw_tags: bool = True,
    progress: Progress = no_progress,
) -> Records:
    """Load the embedded data set, after drawing it into ``root`` if necessary.

    The threshold of MIRFLICKR's tag filter is scaled to the number of images: a tag is frequent if it occurs in
    20 / 25,000 of them, at least in 2.

    Args:
        root: folder of the set.
        n_images: number of images.
        data_seed: of all draws.
        raw_tags: hashtags as typed, with their casings, rather than lower-case.
        progress: called with (images drawn, n_images).

    Raises:
        InputError: ``root`` holds a set with other settings, or something else.
    """
    synthesize(root, n_images, data_seed, progress)
    return load_mirflickr(root, min_tag_count=max(2, round(n_images * 20 / 25000)), raw_tags=raw_tags)


def load_simulated(
    path: Path,
    rows: int = 14_000,
    width: int = 128,
    image_noise: float = 1.6,
    text_noise: float = 2.2,
    simulation_seed: int = 0,
) -> Records:
    """Simulate features of two modalities, each ``labels · W / √c + noise · ε`` with W ``(c, width)``, ε ~ N(0, 1).

    Label rows are drawn without replacement among those with at least one label. Features are linear in the labels;
    the noise alone decides how much a modality tells about them.

    Args:
        path: an ``.npz``, ``.mat`` or ``.h5`` file with ``labels`` ``(n, c)`` and perhaps ``label_names``.
        rows: number of label rows to draw.
        width: d of both modalities.
        image_noise: spread of the images' noise.
        text_noise: spread of the texts' noise.
        simulation_seed: seed of rows, matrices and noise.

    Raises:
        InputError: the file has no labels, or fewer labelled rows than ``rows``.
    """
    arrays = read_arrays(path)
    if "labels" not in arrays:
        raise InputError(f"{path}: has no array 'labels'; it has {', '.join(sorted(arrays)) or 'none'}")
    labels, names = read_labels(arrays["labels"], arrays, path)
    labelled = np.flatnonzero(labels.any(axis=1))
    if not 1 <= rows <= len(labelled):
        raise InputError(f"data.rows is {rows}, but {path} has {len(labelled)} rows with a label")
    chosen = np.sort(generator(simulation_seed, "simulated rows").choice(labelled, size=rows, replace=False))
    drawn = labels[chosen]
    items = {}
    for modality, noise in {"image": image_noise, "text": text_noise}.items():
        random = generator(simulation_seed, "simulated features", modality)
        signal = drawn @ random.standard_normal((labels.shape[1], width)) / np.sqrt(labels.shape[1])
        items[modality] = (signal + noise * random.standard_normal(signal.shape)).astype(np.float32)
    removed = {"no label": len(labels) - len(labelled), "not drawn": len(labelled) - rows}
    return Records(tuple(map(str, chosen)), items, drawn, names, removed=removed, found=len(labels))
