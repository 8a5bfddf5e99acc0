"""Every file that is not text has its licence on the page of licences, every photograph its author."""

import re
import subprocess
from fnmatch import fnmatch

from PIL import Image

from pages import DOCS, ROOT

#: What git keeps as text of ours, all under the licence of the project.
_TEXT = re.compile(
    r"\.(py|pyi|md|ya?ml|toml|txt|json|sh|html|js|css|sbatch|cff|j2)$|(^|/)[^./]+$|(^|/)\.[\w-]+$|Dockerfile"
)


def test_every_file_that_is_not_text_is_in_the_table():
    page = (DOCS / "reference" / "licences.md").read_text(encoding="utf-8")
    patterns = [pattern for row in re.findall(r"^\| (`.+?) \|", page, re.M) for pattern in re.findall(r"`(.+?)`", row)]
    assert len(patterns) > 5
    kept = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = [name for name in kept.split("\0") if name and not _TEXT.search(name)]
    assert [name for name in files if not any(fnmatch(name, pattern) for pattern in patterns)] == []
    assert [pattern for pattern in patterns if not any(fnmatch(name, pattern) for name in kept.split("\0"))] == []


FOLDER = ROOT / "examples" / "photographs"
LICENCES = ("public domain", "[CC0 1.0](", "[CC BY 2.0](", "[CC BY 4.0](")


def test_every_photograph_is_small_and_has_its_title_author_licence_and_source():
    rows = re.findall(r"^\| (\S+\.jpg) \| (.+) \|$", (FOLDER / "README.md").read_text(encoding="utf-8"), re.M)
    paths = sorted(FOLDER.glob("*.jpg"))
    assert [name for name, _ in rows] == [path.name for path in paths]
    for name, rest in rows:
        cells = [cell.strip() for cell in rest.split(" | ")]
        assert len(cells) == 4, name
        assert all(cells), name
        assert cells[2].startswith(LICENCES), name
    assert sum(path.stat().st_size for path in paths) < 1_500_000
    for path in paths:
        with Image.open(path) as image:
            assert max(image.size) <= 320, path.name
            assert not image.getexif(), path.name
