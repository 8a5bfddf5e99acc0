"""What the documentation shows works: its blocks are run, its commands parsed, its pictures there;
and the notebooks of examples/ import public names only, run without a network, and show what a run
shows.
"""

import ast
import re
import shutil
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

import channelhash as ch
from pages import DOCS, ROOT, bare, blocks_of, check_command, commands_of, run_page

PAGES = [
    page
    for folder in ("tutorials", "how-to", "explanation")
    for page in sorted((DOCS / folder).rglob("*.md"))
]
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
                shutil.copytree(
                    finish(page.with_stem(before)), folder, symlinks=True, dirs_exist_ok=True
                )
            run_page(page, folder)
            folders[page.stem] = folder
        return folders[page.stem]

    return finish


@pytest.mark.docs
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.stem, marks=[pytest.mark.slow] * (page.stem in SLOW))
        for page in RUN
    ],
)
def test_the_blocks_of_a_page_run(page, finished):
    finished(page)


@pytest.mark.parametrize(
    "page", [README, *sorted(DOCS.rglob("*.md"))], ids=lambda page: str(page.relative_to(ROOT))
)
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
    blocks = [
        block for block in blocks_of(README.read_text(encoding="utf-8")) if block.kind == "python"
    ]
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


@pytest.mark.parametrize(
    ("page", "says"),
    [
        ("```python\nprint(1)\n```\n\n```text\none\n```\n", "'one' is not in"),
        ("```python\nprint('a\\nb')\n```\n\n```text\nb\na\n```\n", "'a' is not in"),
        ("```sh\nrm -r x\n```\n", "say why rm is not"),
        ("```sh\nchannelhash evaluate no-such-run\n```\n", "ended with 2"),
        (
            "```diff\n--- src/channelhash/losses/__init__.py\n no such line\n+x = 1\n```\n",
            "is not there once",
        ),
        (
            "```diff\n--- src/channelhash/losses/__init__.py\n from pydantic import Field\n+x = "
            "1\n```\n",
            "no registry",
        ),
        ("```brainfuck\n+\n```\n", "what is"),
    ],
)
def test_a_page_that_does_not_work_fails(page, says, tmp_path):
    (tmp_path / "page.md").write_text(page)
    with pytest.raises(AssertionError, match=says):
        run_page(tmp_path / "page.md", tmp_path)


EXAMPLES = ROOT / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))


def code_of(notebook: Any) -> list[Any]:
    """The cells with code, which show something or define names."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def printed(cell: Any) -> list[str]:
    """The lines that a cell prints, without numbers and spacing; a figure is a line ``image``."""
    lines: list[str] = []
    for output in cell.outputs:
        assert output.output_type in ("stream", "display_data", "execute_result"), output
        if output.output_type == "stream":
            assert output.name == "stdout", output.text
            lines += map(bare, output.text.splitlines())
        else:
            is_image = {"image/jpeg", "image/png"} & output.data.keys()
            lines.append("image" if is_image else bare(output.data["text/plain"]))
    return lines


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_with_small_outputs_and_without_traces_of_a_machine(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert path.stat().st_size < 700_000
    cells = code_of(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert sum(printed(cell).count("image") for cell in cells) >= 2
    assert sum(line != "image" for cell in cells for line in printed(cell)) >= 3
    for word in ("/tmp", "/home", "/root", "site-packages", "Warning"):
        assert word not in path.read_text(encoding="utf-8"), word


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_imports_public_names_only(path):
    cells = code_of(nbformat.read(path, as_version=4))
    for node in (node for cell in cells for node in ast.walk(ast.parse(cell.source))):
        if isinstance(node, ast.ImportFrom):
            assert not (node.module or "").startswith("channelhash"), ast.unparse(node)
        elif isinstance(node, ast.Import):
            for name in node.names:
                if name.name.startswith("channelhash"):
                    assert (name.name, name.asname) == ("channelhash", "ch"), ast.unparse(node)
    # Dotted names below ch, as far as they are modules and their names: losses.HashLoss, index.
    dotted = (name for cell in cells for name in re.findall(r"\bch(?:\.\w+)+", cell.source))
    used = {".".join(name.split(".")[1:3]) for name in dotted}
    assert used
    for name in used:
        first, _, second = name.partition(".")
        assert first in ch.__all__, f"ch.{name}"
        public = getattr(getattr(ch, first), "__all__", None)
        assert not second.startswith("_"), f"ch.{name}"
        assert not second or public is None or second in public, f"ch.{name}"


@pytest.mark.docs
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_shows_what_a_run_shows(path, tmp_path, monkeypatch):
    monkeypatch.setenv("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    shutil.copytree(
        EXAMPLES / "photographs", tmp_path / "photographs", ignore=shutil.ignore_patterns(".*")
    )
    kept, run = (nbformat.read(path, as_version=4) for _ in range(2))
    for cell in code_of(run):
        cell.outputs, cell.execution_count = [], None
    import matplotlib.font_manager  # noqa: F401 -- makes its cache, of which a notebook would tell otherwise

    NotebookClient(run, timeout=1200, resources={"metadata": {"path": str(tmp_path)}}).execute()
    for shown, now in zip(code_of(kept), code_of(run), strict=True):
        assert printed(shown) == printed(now), shown.source
