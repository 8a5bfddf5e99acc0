"""A model that nobody trained, and collections to put into stores with it."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from channelhash.indexing.encode import Indexed, index_source
from channelhash.indexing.source import Source
from channelhash.models.description import Model
from channelhash.search.store import Store
from channelhash.utils.progress import StageProgress
from extras import needs
from picture_runs import picture_records, write_pictures

if TYPE_CHECKING:
    from channelhash.models import HashModel


def small_model(folder: Path, n_bits: int = 12, seed: int = 0) -> "HashModel":
    """An untrained model of pictures and texts, saved in ``folder/model``: its codes differ, and no
    more is needed.
    """
    needs("train")
    import torch

    from channelhash.models import MODELS

    torch.manual_seed(seed)
    model = MODELS["small"].create(picture_records(folder / "data"), n_bits, image_size=16, width=8)
    model.save_pretrained(folder / "model")
    return model.eval()


def encode_into(
    store: Store, model: Model, source: Source, *progress: StageProgress, prune: bool = False
) -> Indexed:
    """Encode a source into a store."""
    return index_source(store, lambda: model, source.encodable(model), *progress, prune=prune)[0]


def colours(images):
    """An extractor: the mean colour of an image, as far as it is red, green and blue."""
    opened = [image if isinstance(image, Image.Image) else Image.open(image) for image in images]
    means = [np.asarray(image.convert("RGB"), float).mean(axis=(0, 1)) for image in opened]
    return np.stack(means) / 255 + 0.01


def words(texts):
    """An extractor: the colours that a text names."""
    return (
        np.array([[text.count(name) for name in ("red", "green", "blue")] for text in texts]) + 0.01
    )


EXTRACTORS = {"image": f"python:{__name__}:colours", "text": f"python:{__name__}:words"}


def picture_folder(folder: Path, n: int = 9) -> Path:
    """``n`` pictures at two depths: ``0.png``, ``deep/er/1.png``, ``2.png``, …"""
    write_pictures(folder, n)
    (folder / "items.csv").unlink()
    (folder / "deep" / "er").mkdir(parents=True)
    for i in range(n):
        (folder / "images" / f"{i}.png").rename(
            folder / (f"deep/er/{i}.png" if i % 2 else f"{i}.png")
        )
    (folder / "images").rmdir()
    return folder
