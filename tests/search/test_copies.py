"""How many copies of photographs and of drawn pages are found: the table of the page on search.

``PHOTOS=folder pytest -m slow -s tests/search/test_copies.py`` measures the first 250 JPEG files of a folder.
"""

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageFilter, ImageOps
from tests.search.test_alike import lines

from channelhash.search.copies import group_copies, read_copy

PHOTOS = Path(os.environ.get("PHOTOS", Path(__file__).parents[2] / "examples" / "photographs"))
# Least share that is found, of photographs and of pages.
KINDS = {
    "half": (0.98, 0.98), "quarter": (0.98, 0.8), "q50": (0.98, 0.98), "q30": (0.98, 0.98), "png": (0.98, 0.98),
    "webp": (0.98, 0.98), "bright": (0.95, 0.95), "gamma": (0.95, 0.95), "blur": (0.98, 0.9),
    "sharp": (0.95, 0.9), "border": (0.8, 0), "cut": (0.5, 0),
}  # fmt: skip


def write_copies(image: Image.Image, number: int, folder: Path) -> None:
    """Write an image and a copy of each kind."""
    width, height = image.size
    short, long = sorted(image.size)
    cut, gamma = round(0.04 * short), 0.85 if number % 2 else 1.15
    level = [round(255 * (value / 255) ** gamma) for value in range(256)]
    changed = {
        "original": image,
        "half": image.resize((width // 2, height // 2), Image.Resampling.LANCZOS),
        "quarter": image.resize((width // 4, height // 4), Image.Resampling.LANCZOS),
        "q50": image,
        "q30": image,
        "bright": ImageEnhance.Brightness(image).enhance(1.1 if number % 2 else 0.9),
        "gamma": image.point(level * 3),
        "blur": image.filter(ImageFilter.GaussianBlur(max(0.5, long / 1000))),
        "sharp": image.filter(ImageFilter.UnsharpMask(2, 100, 2)),
        "border": ImageOps.expand(image, max(2, short // 50), "white" if number % 2 else "black"),
        "cut": image.crop((cut, cut, width - cut, height - cut)),
    }
    for kind, copy in changed.items():
        quality = int(kind[1:]) if kind in ("q50", "q30") else 90
        copy.save(folder / f"{number:03}-{kind}.jpg", quality=quality)
    image.save(folder / f"{number:03}-png.png")
    image.save(folder / f"{number:03}-webp.webp", quality=80)


@pytest.mark.slow
@pytest.mark.parametrize("column", [0, 1], ids=["photographs", "pages"])
def test_copies_are_found_and_nothing_else(column, tmp_path):
    photographs = sorted(PHOTOS.glob("*.jpg"))[:250]
    for number in range(len(photographs) if column == 0 else 100):
        image = lines(number) if column else Image.open(photographs[number]).convert("RGB")
        write_copies(image, number, tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    copies = [copy for name in names if (copy := read_copy(str(tmp_path / name)))]
    groups = group_copies(np.zeros((len(names), 1), np.uint8), copies, None)
    mixed = [group for group in groups if len({names[place][:3] for place in group}) > 1]
    group_of = {names[place]: number for number, group in enumerate(groups) for place in group.tolist()}
    shares = {}
    for kind in KINDS:
        of_kind = [name for name in names if f"-{kind}." in name]
        originals = [group_of.get(f"{name[:3]}-original.jpg", -1) for name in of_kind]
        found = [group_of.get(name) == original for name, original in zip(of_kind, originals, strict=True)]
        shares[kind] = sum(found) / len(found)
    print({kind: f"{share:.1%}" for kind, share in shares.items()}, "mixed:", len(mixed))
    assert not mixed
    assert all(shares[kind] >= least[column] for kind, least in KINDS.items()), shares
