"""Small pictures with texts, and backbones small enough for a test."""

import io
import json
from pathlib import Path

import numpy as np
from PIL import ExifTags, Image

from channelhash.data.records import Records
from channelhash.utils.seeds import generator

WORDS = ("red", "green", "blue", "dark", "bright")


def write_pictures(folder: Path, n: int = 60) -> Path:
    """``items.csv`` and its pictures: a label is a colour, which picture and text both show."""
    (folder / "images").mkdir(parents=True, exist_ok=True)
    lines = ["id,image,text,labels"]
    for i in range(n):
        random = generator(0, "picture", i)
        label = i % 3
        pixels = random.integers(0, 120, (40, 52, 3), dtype=np.uint8)
        pixels[..., label] += 120
        Image.fromarray(pixels).save(folder / "images" / f"{i}.png")
        extra = WORDS[3 + int(random.integers(2))]
        lines.append(f"item{i:03d},images/{i}.png,a {extra} {WORDS[label]} picture,{WORDS[label]}")
    (folder / "items.csv").write_text("\n".join(lines) + "\n")
    return folder / "items.csv"


def picture_records(folder: Path, n: int = 60) -> Records:
    """The records of `write_pictures`."""
    from channelhash.data.table import load_table

    return load_table(write_pictures(folder, n))


def photograph(number: int) -> Image.Image:
    """Draw an image with large shapes, as photographs have them; no two are alike."""
    pixels = generator(0, "alike", number).integers(0, 256, (5, 6, 3), dtype=np.uint8)
    return Image.fromarray(pixels).resize((180, 150), Image.Resampling.BICUBIC)


def as_written(image: Image.Image, orientation: int, file_format: str = "JPEG") -> io.BytesIO:
    """The file of a camera that was held so that ``image`` has to be turned to be seen upright."""
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    exif.get_ifd(ExifTags.IFD.Exif)[ExifTags.Base.DateTimeOriginal] = "2019:07:14 10:20:30"
    file = io.BytesIO()
    image.save(
        file,
        file_format,
        exif=exif,
        **{"lossless": True} if file_format == "WEBP" else {"quality": 95},
    )
    file.seek(0)
    return file


def tiny_clip(path: Path, image_size: int = 32) -> Path:
    """A model configuration of OpenCLIP with 1.7 million weights, almost all of them token
    vectors.
    """
    config = {
        "embed_dim": 24,
        "vision_cfg": {
            "image_size": image_size,
            "layers": 1,
            "width": 32,
            "head_width": 16,
            "patch_size": 16,
        },
        "text_cfg": {
            "context_length": 77,
            "vocab_size": 49408,
            "width": 32,
            "heads": 2,
            "layers": 1,
        },
    }
    path.write_text(json.dumps(config))
    return path


def picture_config(
    path: Path,
    items: Path,
    model: dict[str, object],
    loss: str = "dsch",
    kind: str = "table",
    **train: object,
) -> Path:
    """A run's configuration on `write_pictures`."""
    settings = {
        "epochs": 3,
        "batch_size": 10,
        "learning_rate": 1e-3,
        "validate_every": 1,
        "checkpoint_every": 1,
    }
    sections = {
        "data": {
            "kind": kind,
            "path": str(items),
            "queries": 12,
            "train": 30,
            "validation_queries": 6,
        },
        "model": {"n_bits": 12, **model},
        "loss": {"name": loss},
        "train": settings | train,
    }
    path.write_text(json.dumps(sections))
    return path


def write_picture_features(path: Path, n: int = 60) -> Path:
    """Features of `write_pictures`, as a large encoder might give them."""
    random, labels = np.random.default_rng(0), np.eye(3, dtype=bool)[np.arange(n) % 3]
    arrays = {name: labels + 0.1 * random.normal(size=labels.shape) for name in ("image", "text")}
    ids = np.array([f"item{i:03d}" for i in range(n)])
    np.savez(path, labels=labels, id=ids, label_names=np.array(WORDS[:3]), **arrays)
    return path


def features_config(path: Path, features: Path, **train: object) -> Path:
    """A run's configuration on `write_picture_features`."""
    return picture_config(
        path, features, {"name": "features", "hidden": [16]}, kind="features", **train
    )


def clip_model(folder: Path, **settings: object) -> dict[str, object]:
    """The section ``model`` of a small CLIPHash."""
    backbone = tiny_clip(folder / "tiny-clip.json")
    return {
        "name": "cliphash",
        "backbone": str(backbone),
        "pretrained": None,
        "hidden": [32],
    } | settings


def resnet_model(**settings: object) -> dict[str, object]:
    """The section ``model`` of a small TDSRDH."""
    hidden = {"image": [32], "text": [32]}
    return {
        "name": "tdsrdh",
        "backbone": "resnet18",
        "pretrained": None,
        "hidden": hidden,
    } | settings
