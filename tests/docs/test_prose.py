"""The checks of prose and of links find what they are for, and nothing in code."""

import sys

import pytest

from pages import ROOT

sys.path.insert(0, str(ROOT / "tools" / "site"))

from links import dead_links
from prose import check_prose

VOCABULARY = {"anew": "again", "goes? on with": "continue(s) with"}


@pytest.mark.parametrize(("text", "line", "says"), [
    ("# T\n\nIt is read anew.\n", 3, "'anew': write again"),
    ("It Goes on with this.\n", 1, "'Goes on with': write continue(s) with"),
    ("One line.\nIt is in the the store.\n", 2, "lexical_illusions"),
    ("A very unique loss.\n", 1, "uncomparables"),
])  # fmt: skip
def test_a_phrase_is_found_with_its_line(text, line, says):
    assert any(found.line == line and says in found.message for found in check_prose(text, VOCABULARY))


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
        "[f](none.md) `[g](none.md)`\n[h](other.md#no-heading) ![i](none.png)\n```\n[j](none.md)\n```\n[k](#none)\n"
    )
    assert dead_links(page) == [(5, "none.md"), (6, "other.md#no-heading"), (6, "none.png"), (10, "#none")]
