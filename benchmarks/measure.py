"""What the benchmarks share: options, tables and made-up inputs."""

import argparse
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from channelhash.codes import PackedCodes, pack
from channelhash.data.records import Records
from channelhash.models import MODELS, HashModel
from channelhash.utils.seeds import generator
from timing import Row, describe_machine

WORDS = (
    "sunset",
    "sea",
    "dog",
    "street",
    "night",
    "snow",
    "red",
    "boat",
    "people",
    "flower",
    "old",
    "house",
)
_ROWS = 100_000  # that are drawn at once


def options(
    description: str | None, **defaults: int | float | str | tuple[int, ...]
) -> argparse.Namespace:
    """Read ``--name VALUE`` for each default; several numbers are separated by commas."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in defaults.items():
        kind = _numbers if isinstance(default, tuple) else type(default)
        shown = ",".join(map(str, default)) if isinstance(default, tuple) else default
        parser.add_argument(f"--{name}", default=default, type=kind, help=f"default: {shown}")
    return parser.parse_args()


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def size_of(folder: Path) -> int:
    """Return the bytes of all files of a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def print_table(rows: Sequence[Mapping[str, Any]], title: str = "") -> None:
    """Print rows in Markdown, a column for each key that any of them has."""
    keys = list(dict.fromkeys(key for row in rows for key in row))
    lines = [keys, ["---"] * len(keys), *([_cell(row.get(key)) for key in keys] for row in rows)]
    print(f"{title + ': ' if title else ''}{describe_machine()}, {time.strftime('%Y-%m-%d')}\n")
    print("\n".join(f"| {' | '.join(line)} |" for line in lines), end="\n\n", flush=True)


def _cell(value: object) -> str:
    return "" if value is None else f"{value:,.4g}" if isinstance(value, float) else str(value)


def print_rows(rows: Sequence[Row]) -> None:
    """Print what `timing.compare` has measured."""
    print_table(
        [
            {
                "what": row["what"],
                "size": row["size"],
                "time": seconds(row["seconds"]),
                "alternative": row["baseline"],
                "its time": None
                if row["baseline_seconds"] is None
                else seconds(row["baseline_seconds"]),
                "ratio": row["ratio"] and f"{row['ratio']:.3g}",
                "MB": row["peak_mb"] and round(row["peak_mb"]),
            }
            for row in rows
        ]
    )


def seconds(value: float) -> str:
    """Return seconds with a unit: 511 µs, 18.7 ms, 0.79 s."""
    if value >= 0.1:
        return f"{value:.2f} s"
    return f"{1e3 * value:.1f} ms" if value >= 1e-3 else f"{1e6 * value:.0f} µs"


def in_turn(calls: Sequence[Callable[[], object]], repeats: int = 5) -> list[float]:
    """Return the median seconds of each call; they take turns, and short ones are repeated within a
    turn.
    """
    for call in calls:
        call()
    counts = [max(1, round(0.05 / max(_timed(call, 1), 1e-9))) for call in calls]
    times = [
        [_timed(call, count) for call, count in zip(calls, counts, strict=True)]
        for _ in range(repeats)
    ]
    return [statistics.median(each) for each in zip(*times, strict=True)]


def _timed(call: Callable[[], object], count: int) -> float:
    began = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - began) / count


def draw_labels(n: int, c: int, role: str) -> NDArray[np.bool_]:
    """Draw label sets as a photo collection has them: a few frequent labels and many rare ones,
    about two an item.
    """
    random = generator(0, "benchmark labels", role, n, c)
    chances = 0.4 / np.arange(1, c + 1) ** 0.8
    labels = np.concatenate(
        [random.random((min(_ROWS, n - i), c)) < chances for i in range(0, n, _ROWS)]
    )
    bare = ~labels.any(axis=1)
    labels[bare, random.integers(0, c, int(bare.sum()))] = True
    return labels


def draw_codes(
    labels: NDArray[np.bool_], k: int, modality: str, flipped: float = 0.15
) -> PackedCodes:
    """Draw codes clustered by label set: signs of the sum of an item's label directions, some bits
    flipped.
    """
    directions = generator(0, "benchmark directions", k, labels.shape[1]).normal(
        size=(labels.shape[1], k)
    )
    random = generator(0, "benchmark flips", modality, len(labels), k)
    parts = []
    for start in range(0, len(labels), _ROWS):
        signs = (
            labels[start : start + _ROWS].astype(np.float32) @ directions.astype(np.float32) >= 0
        )
        parts.append(pack(signs ^ (random.random(signs.shape, dtype=np.float32) < flipped)))
    return np.concatenate(parts)


def clustered_codes(
    n: int, n_bits: int, prototypes: int, role: str = "items", flipped: float = 0.08
) -> PackedCodes:
    """Draw codes around the same prototypes for every role, as learned codes lie around their
    classes.
    """
    centres = generator(0, "benchmark", "prototypes", n_bits).random((prototypes, n_bits)) < 0.5
    random = generator(0, "benchmark", role, n_bits)
    parts = []
    for start in range(0, n, _ROWS):
        size = min(_ROWS, n - start)
        flips = random.random((size, n_bits), dtype=np.float32) < flipped
        parts.append(pack(centres[random.integers(0, prototypes, size)] ^ flips))
    return np.concatenate(parts)


def draw_images(folder: Path, n: int) -> list[Path]:
    """Draw JPEG files of smoothed noise, as large as MIRFLICKR's images and about as hard to
    decode.
    """
    paths = [folder / f"{i}.jpg" for i in range(n)]
    for i, path in enumerate(paths):
        coarse = generator(0, "benchmark picture", i).integers(0, 256, (47, 63, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize((500, 375), Image.Resampling.BICUBIC).save(path, quality=90)
    return paths


def draw_texts(n: int, role: str) -> list[str]:
    """Draw texts of four of a dozen words."""
    random = generator(0, role)
    return [" ".join(random.choice(WORDS, 4)) for _ in range(n)]


def small_text_model(n_bits: int) -> HashModel:
    """Return the small model of texts, untrained: encoding costs what a trained one does."""
    texts = draw_texts(200, "questions")
    records = Records(
        tuple(map(str, range(200))),
        {"text": tuple(texts)},
        np.ones((200, 1), dtype=bool),
        ("label",),
    )
    torch.manual_seed(0)
    return MODELS["small"].create(records, n_bits)
