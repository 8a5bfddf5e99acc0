"""The site's pages are made of commands and registries, load nothing from elsewhere, and name every
licence; the checks of prose and of links find what they are for, and nothing in code.
"""

import re
import shlex
import subprocess
import sys
from fnmatch import fnmatch

import pytest
from PIL import Image

from channelhash.data import DATA_KINDS
from channelhash.losses import LOSSES
from channelhash.models import MODELS
from pages import DOCS, ROOT, check_command

sys.path.insert(0, str(ROOT / "tools" / "site"))

from links import dead_links
from prose import check_prose


def test_every_command_is_on_its_page():
    from commands import commands_page

    page = commands_page()
    for words in ("demo", "index create", "data describe", "serve"):
        assert f"\n## {words}\n" in page
    assert "| `--resume` | Continue an interrupted run in the same folder. |" in page
    assert "`-k <int>`" in page
    assert "`--set <str> …`" in page
    assert "list[" not in page
    assert "range>" not in page
    examples = [
        line for line in page.splitlines() if line.startswith("channelhash ") and "[" not in line
    ]
    assert len(examples) > 15
    for line in examples:
        check_command(shlex.split(line))


def test_every_registered_name_and_its_keys_are_on_the_page_of_keys():
    from configuration import configuration_page

    page = configuration_page()
    for section, registry in {
        "data.kind": DATA_KINDS,
        "model.name": MODELS,
        "loss.name": LOSSES,
    }.items():
        for name in registry:
            assert f"\n### {section}: {name}\n" in page
    assert "| `kappa_q` | `float` | `0.01` | weight κ_q of the quantisation error. |" in page
    assert "| `path` | `path` | required |" in page
    assert "False" not in page
    assert "| `epochs` | `int` ≥ 1 | `200` | passes over the training rows. |" in page
    described = [line for line in page.splitlines() if line.startswith("| `")]
    # a key without a word on what it does
    assert [line for line in described if line.endswith("|  |")] == []


@pytest.mark.parametrize(("name", "text", "found"), [
    ("a.html", '<script src="https://cdn.example.org/x.js"></script>', 1),
    ("a.html", '<link rel="stylesheet" href="//fonts.example.org/x.css">', 1),
    ("a.html", '<a href="https://example.org">a link to click on</a><img src="own.png">', 0),
    ("a.css", "@import url(https://fonts.example.org/x.css); a { background: url('own.png') }", 1),
])  # fmt: skip
def test_a_page_that_loads_something_from_elsewhere_is_found(tmp_path, name, text, found):
    from hooks import foreign_resources

    (tmp_path / name).write_text(text)
    assert len(foreign_resources(tmp_path / name)) == found


def test_every_page_has_its_place_in_the_navigation():
    placed = set(re.findall(r"[\w/-]+\.md\b", (ROOT / "mkdocs.yml").read_text()))
    written = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    # made from the code
    assert placed == written | {"reference/commands.md", "reference/configuration.md"}


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path):
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path), strict=True))
    assert "hamming_distances" in (tmp_path / "reference" / "api" / "codes.html").read_text()
    assert "<svg" in (tmp_path / "images" / "architecture.svg").read_text()


#: What git keeps as text of ours, all under the licence of the project.
_TEXT = re.compile(
    r"\.(py|pyi|md|ya?ml|toml|txt|json|sh|html|js|css|sbatch|cff|j2)$|(^|/)[^./]+$|(^|/)\.[\w-]+$|Dockerfile"
)


def test_every_file_that_is_not_text_is_in_the_table():
    page = (DOCS / "reference" / "licences.md").read_text(encoding="utf-8")
    patterns = [
        pattern
        for row in re.findall(r"^\| (`.+?) \|", page, re.M)
        for pattern in re.findall(r"`(.+?)`", row)
    ]
    assert len(patterns) > 5
    kept = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    files = [name for name in kept.split("\0") if name and not _TEXT.search(name)]
    assert [name for name in files if not any(fnmatch(name, pattern) for pattern in patterns)] == []
    assert [
        pattern
        for pattern in patterns
        if not any(fnmatch(name, pattern) for name in kept.split("\0"))
    ] == []


FOLDER = ROOT / "examples" / "photographs"
LICENCES = ("public domain", "[CC0 1.0](", "[CC BY 2.0](", "[CC BY 4.0](")


def test_every_photograph_is_small_and_has_its_title_author_licence_and_source():
    rows = re.findall(
        r"^\| (\S+\.jpg) \| (.+) \|$", (FOLDER / "README.md").read_text(encoding="utf-8"), re.M
    )
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


VOCABULARY = {"anew": "again", "goes? on with": "continue(s) with"}


@pytest.mark.parametrize(("text", "line", "says"), [
    ("# T\n\nIt is read anew.\n", 3, "'anew': write again"),
    ("It Goes on with this.\n", 1, "'Goes on with': write continue(s) with"),
    ("One line.\nIt is in the the store.\n", 2, "lexical_illusions"),
    ("A very unique loss.\n", 1, "uncomparables"),
])  # fmt: skip
def test_a_phrase_is_found_with_its_line(text, line, says):
    assert any(
        found.line == line and says in found.message for found in check_prose(text, VOCABULARY)
    )


@pytest.mark.parametrize("text", [
    "```sh\nread anew\n```\n",
    "- a list\n\n  ```text\n  read anew\n  ```\n",
    "The option `anew` of [it](anew.md), https://example.org/anew <!-- anew -->\n",
    "---\ntitle: anew\n---\n",
    "# A loss\n\nA loss is a file.\n",
])  # fmt: skip
def test_code_addresses_and_symbols_are_no_prose(text):
    assert check_prose(text, VOCABULARY) == []


def test_links_that_lead_nowhere_are_found(tmp_path):
    (tmp_path / "other.md").write_text("# A heading\n\n```\n# no heading\n```\n")
    page = tmp_path / "page.md"
    page.write_text(
        "[a](other.md) [b](other.md#a-heading) [c](#own) [d](https://example.org/x) [e](.)\n\n# Own\n\n"
        "[f](none.md) `[g](none.md)`\n[h](other.md#no-heading) "
        "![i](none.png)\n```\n[j](none.md)\n```\n[k](#none)\n"
    )
    assert dead_links(page) == [
        (5, "none.md"),
        (6, "other.md#no-heading"),
        (6, "none.png"),
        (10, "#none"),
    ]
