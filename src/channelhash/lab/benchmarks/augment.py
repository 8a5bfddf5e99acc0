"""Images a second through decode, resize and augmentation, and how busy the loader keeps the cores."""

import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

from channelhash.augment.progressive import Progression, apply, plan
from channelhash.augment.tables import LEVELS, Level
from channelhash.data.image_loader import ImageFiles, image_batches
from channelhash.data.images import load_pixels
from channelhash.lab.benchmarks.images import draw_images
from channelhash.text.token_cache import cached_tokens
from channelhash.text.tokens import encode_hashed
from channelhash.training.augmented_loader import AugmentedImages
from channelhash.utils.environment import usable_cores
from channelhash.utils.image_decoding import decode
from channelhash.utils.image_files import open_image
from channelhash.utils.memory import peak_bytes, processor_seconds
from channelhash.utils.seeds import generator
from channelhash.utils.timing import Row, compare, single_row

SIZE = 224


def benchmark_augment(images: list[Path] | None = None, n: int = 128, loader_n: int = 1024) -> list[Row]:
    """Measure decoding and resizing, each level of augmentation, and the loader with one worker a core.

    Args:
        images: files to read; None draws noise of 500 × 375 pixels, the size of MIRFLICKR's.
        n: images a timed run, single-threaded.
        loader_n: images that the loader reads.

    Returns:
        ``what`` says images a second, and for the loader the share of the cores' time that was used.
    """
    with tempfile.TemporaryDirectory() as folder:
        paths = images or draw_images(Path(folder), n)
        chosen = [paths[i % len(paths)] for i in range(n)]
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            rows = [
                compare(
                    "decode and resize",
                    f"{n} pictures to {SIZE} pixels, 1 core",
                    lambda: load_pixels(chosen, SIZE),
                    "Pillow at full size, then torchvision resize",
                    lambda: _decode_plainly(chosen),
                )
            ]
            pixels = load_pixels(chosen, SIZE).float() / 255
            for level in LEVELS:
                size = f"{n} pictures of {SIZE} pixels, 1 core"
                rows.append(compare(f"augment {level}", size, _augmented(pixels, level)))
            reading = rows[0]["seconds"]
            rows[0]["what"] += f" ({n / reading:.0f} pictures/s)"
            for row in rows[1:]:
                share = row["seconds"] / (row["seconds"] + reading)
                row["what"] += f" ({n / row['seconds']:.0f} pictures/s, {100 * share:.0f} % of decode to augment)"
        finally:
            torch.set_num_threads(threads)
        rows.append(_text_row(Path(folder), n))
        rows.append(_loader_row([paths[i % len(paths)] for i in range(loader_n)]))
    return rows


def _augmented(pixels: torch.Tensor, level: Level) -> Callable[[], None]:
    progression = Progression(0, len(pixels), level=level)

    def run() -> None:
        for sample, image in enumerate(pixels):
            apply(image, plan(progression, 0, sample), pixels.__getitem__)

    return run


def _decode_plainly(paths: list[Path]) -> None:
    from channelhash.utils.torchvision_compat import functional as F

    for path in paths:
        with open_image(path) as image:
            pixels = torch.from_numpy(np.array(decode(image))).permute(2, 0, 1)
        F.center_crop(F.resize(pixels, [SIZE], antialias=True), [SIZE])


def _text_row(folder: Path, n: int) -> Row:
    """Measure reading as many texts from the token cache: what the loader waits for on the text side."""
    texts = [f"word{i} word{i % 97} sunset" for i in range(20_000)]
    tokens = cached_tokens(texts, lambda part: encode_hashed(part, 16384, 128), "benchmark", folder)
    rows = generator(0, "benchmark rows").integers(0, len(texts), n)
    return compare("token ids from the cache", f"{n} of {len(texts)} texts, 128 tokens", lambda: np.array(tokens[rows]))


def _loader_row(paths: list[Path]) -> Row:
    """Measure the loader at hard augmentation, from the first batch on: the processes' start does not count.

    The cores are as busy as processor time of all workers over wall time of all cores.
    """
    cores = usable_cores()
    batches = list(torch.split(torch.arange(len(paths)), 32))
    images = AugmentedImages(ImageFiles(paths, partial(load_pixels, size=SIZE)), seed=0, level="hard")
    draws = [[(0, row) for row in rows.tolist()] for rows in batches]
    reader = image_batches(images, draws, workers=cores)
    next(reader)
    began, done = time.perf_counter(), len(batches[0])
    used_before = processor_seconds(os.getpid())
    used = used_before or 0.0
    for batch in reader:
        done += len(batch)
        used = max(used, processor_seconds(os.getpid()) or 0.0)
    seconds = time.perf_counter() - began
    rate = (done - len(batches[0])) / seconds
    busy = "" if used_before is None else f", cores {100 * (used - used_before) / (seconds * cores):.0f} % busy"
    peak = peak_bytes(children=True)
    size = f"{done} pictures from disk, {cores} workers"
    return single_row(f"loader, hard ({rate:.0f} pictures/s{busy})", size, seconds, peak and peak / 1e6)
