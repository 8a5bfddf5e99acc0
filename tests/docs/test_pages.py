"""What the documentation shows works: its blocks are run, its commands parsed, its pictures there."""

import re
import shutil
from pathlib import Path

import pytest

from pages import DOCS, ROOT, blocks_of, check_command, commands_of, run_page

PAGES = [page for folder in ("tutorials", "how-to", "explanation") for page in sorted((DOCS / folder).rglob("*.md"))]
#: Pages whose blocks are run: all but those that say why not.
RUN = [page for page in PAGES if "\n<!-- page not run: " not in page.read_text(encoding="utf-8")]
#: Page -> the page whose files it goes on from.
GOES_ON_FROM = {"serve": "own-pictures", "scale-out": "own-pictures"}
README = ROOT / "README.md"
#: Pages that take more than a few seconds.
SLOW = {"first-run", "paper-tables"}


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """The folder of a page that has run, by its name; a page runs once a session."""
    folders: dict[str, Path] = {}

    def finish(page: Path) -> Path:
        if page.stem not in folders:
            folder = tmp_path_factory.mktemp(page.stem)
            if before := GOES_ON_FROM.get(page.stem):
                shutil.copytree(finish(page.with_stem(before)), folder, symlinks=True, dirs_exist_ok=True)
            run_page(page, folder)
            folders[page.stem] = folder
        return folders[page.stem]

    return finish


@pytest.mark.docs
@pytest.mark.parametrize(
    "page", [pytest.param(page, id=page.stem, marks=[pytest.mark.slow] * (page.stem in SLOW)) for page in RUN]
)
def test_the_blocks_of_a_page_run(page, finished):
    finished(page)


@pytest.mark.parametrize("page", [README, *sorted(DOCS.rglob("*.md"))], ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_and_pictures_of_a_page_exist(page):
    text = page.read_text(encoding="utf-8")
    for block in blocks_of(text):
        for words in commands_of(block) if block.kind in ("sh", "") else ():
            if words[0] == "channelhash" and "…" not in " ".join(words):
                check_command(words)
    for path in re.findall(r"!\[[^]]*\]\(([^)\s]+)\)", text):
        assert (page.parent / path).exists() or path == "../images/architecture.svg", path
    for path in re.findall(r"configs/\w+\.yaml", text):
        assert (ROOT / path).exists(), path


def test_the_python_example_of_the_readme_runs(capsys):
    blocks = [block for block in blocks_of(README.read_text(encoding="utf-8")) if block.kind == "python"]
    for block in blocks:
        exec(compile(block.code, f"README.md, line {block.line}", "exec"), {})
    assert "(8, 8)" in capsys.readouterr().out


@pytest.mark.parametrize(("line", "says"), [
    ("channelhash trian x", "no such command"),
    ("channelhash index", "no such command"),
    ("channelhash train x.yaml --epoch-count 3", "--epoch-count"),
    ("channelhash report", "missing"),
    ("channelhash demo too much", "too"),
    ("channelhash search x --text", "--text"),
])  # fmt: skip
def test_a_command_that_does_not_exist_is_refused(line, says):
    with pytest.raises(AssertionError, match=says):
        check_command(line.split())


@pytest.mark.parametrize(("page", "says"), [
    ("```python\nprint(1)\n```\n\n```text\none\n```\n", "'one' is not in"),
    ("```python\nprint('a\\nb')\n```\n\n```text\nb\na\n```\n", "'a' is not in"),
    ("```sh\nrm -r x\n```\n", "say why rm is not"),
    ("```sh\nchannelhash evaluate no-such-run\n```\n", "ended with 2"),
    ("```diff\n--- src/channelhash/losses/__init__.py\n no such line\n+x = 1\n```\n", "is not there once"),
    ("```diff\n--- src/channelhash/losses/__init__.py\n from pydantic import Field\n+x = 1\n```\n", "no registry"),
    ("```brainfuck\n+\n```\n", "what is"),
])  # fmt: skip
def test_a_page_that_does_not_work_fails(page, says, tmp_path):
    (tmp_path / "page.md").write_text(page)
    with pytest.raises(AssertionError, match=says):
        run_page(tmp_path / "page.md", tmp_path)
