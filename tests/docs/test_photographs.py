"""The photographs of examples/ are small, and the page beside them says whose each one is."""

import re
from pathlib import Path

from PIL import Image

FOLDER = Path(__file__).parents[2] / "examples" / "photographs"
LICENCES = ("public domain", "[CC0 1.0](", "[CC BY 2.0](", "[CC BY 4.0](")


def test_every_photograph_is_small_and_has_its_title_author_licence_and_source():
    rows = re.findall(r"^\| (\S+\.jpg) \| (.+) \|$", (FOLDER / "README.md").read_text(encoding="utf-8"), re.M)
    assert [name for name, _ in rows] == sorted(path.name for path in FOLDER.glob("*.jpg"))
    for name, rest in rows:
        cells = [cell.strip() for cell in rest.split(" | ")]
        assert len(cells) == 4, name
        assert all(cells), name
        assert cells[2].startswith(LICENCES), name

    paths = sorted(FOLDER.glob("*.jpg"))
    assert sum(path.stat().st_size for path in paths) < 1_500_000
    for path in paths:
        with Image.open(path) as image:
            assert max(image.size) <= 320, path.name
            assert not image.getexif(), path.name
