"""The runner of the documentation's blocks refuses what a reader could not do."""

import pytest

from channelhash.losses import LOSSES
from pages import Block, blocks_of, check_command, commands_of, run_page


def test_blocks_with_their_notes_and_titles_and_their_commands():
    code = "A=1 channelhash serve x --port 1 # why\n\ncd a && channelhash demo \\\n  --quick\n"
    found = commands_of(Block("sh", code, None, "", 1))
    assert found == [["channelhash", "serve", "x", "--port", "1"], ["cd", "a"], ["channelhash", "demo", "--quick"]]
    text = '# A\n\n<!-- not run: no network -->\n```sh\nmake x\n```\n\n```python title="a.py"\nx = 1\n```\n'
    first, second = blocks_of(text)
    assert (first.kind, first.runs, first.line) == ("sh", False, 5)
    assert (second.title, second.code, second.runs) == ("a.py", "x = 1\n", True)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("channelhash trian x", "no such command"),
        ("channelhash index", "no such command"),
        ("channelhash train x.yaml --epoch-count 3", "--epoch-count"),
        ("channelhash report", "missing"),
        ("channelhash demo too much", "too"),
        ("channelhash search x --text", "--text"),
    ],
)
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
        ("```diff\n--- src/channelhash/losses/__init__.py\n no such line\n+x = 1\n```\n", "is not there once"),
        ("```diff\n--- src/channelhash/losses/__init__.py\n from typing import Any\n+x = 1\n```\n", "no registry"),
        ("```brainfuck\n+\n```\n", "what is"),
    ],
)
def test_a_page_that_does_not_work_fails(page, says, tmp_path):
    (tmp_path / "page.md").write_text(page)
    with pytest.raises(AssertionError, match=says):
        run_page(tmp_path / "page.md", tmp_path)


def test_what_a_page_adds_to_a_registry_is_gone_after_it(tmp_path):
    page = (
        '```python title="src/channelhash/losses/nothing.py"\nclass Nothing:\n    pass\n```\n\n'
        "```diff\n--- src/channelhash/losses/__init__.py\n+from channelhash.losses.nothing import Nothing\n"
        ' from typing import Any\n LOSSES: dict[str, type[HashLoss]] = {\n+    "nothing": Nothing,\n```\n\n'
        "```python\nfrom channelhash.losses import LOSSES\nprint(LOSSES['nothing'].__name__)\n```\n\n"
        "```text\nNothing\n```\n"
    )
    (tmp_path / "page.md").write_text(page)
    before = dict(LOSSES)
    run_page(tmp_path / "page.md", tmp_path)
    assert before == LOSSES
    with pytest.raises(ModuleNotFoundError):
        import channelhash.losses.nothing  # noqa: F401
