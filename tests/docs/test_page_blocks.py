"""The runner of the documentation's blocks refuses what a reader could not do."""

import pytest

from pages import check_command, run_page


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
    ("```diff\n--- src/channelhash/losses/__init__.py\n from typing import Any\n+x = 1\n```\n", "no registry"),
    ("```brainfuck\n+\n```\n", "what is"),
])  # fmt: skip
def test_a_page_that_does_not_work_fails(page, says, tmp_path):
    (tmp_path / "page.md").write_text(page)
    with pytest.raises(AssertionError, match=says):
        run_page(tmp_path / "page.md", tmp_path)
