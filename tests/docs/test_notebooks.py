"""The notebooks of examples/ import public names only, run without a network, and show what a run shows."""

import ast
import re
import shutil
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

import channelhash as ch
from pages import bare

EXAMPLES = Path(__file__).parents[2] / "examples"
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
    shutil.copytree(EXAMPLES / "photographs", tmp_path / "photographs", ignore=shutil.ignore_patterns(".*"))
    kept, run = (nbformat.read(path, as_version=4) for _ in range(2))
    for cell in code_of(run):
        cell.outputs, cell.execution_count = [], None
    import matplotlib.font_manager  # noqa: F401 -- makes its cache, of which a notebook would tell otherwise

    NotebookClient(run, timeout=1200, resources={"metadata": {"path": str(tmp_path)}}).execute()
    for shown, now in zip(code_of(kept), code_of(run), strict=True):
        assert printed(shown) == printed(now), shown.source
