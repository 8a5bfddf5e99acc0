"""Each face spells the arguments that an error names as its own users do: terminal, HTTP, MCP and
Python.
"""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import anyio
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from channelhash.cli.serve import add_tools
from channelhash.search.hits import SearchOptions
from channelhash.search.query import search_store
from channelhash.utils.watch import Report
from extras import needs
from refusals import refusal
from small_runs import run_command

needs("mcp")
ITEM = "item003"
_OPTION = re.compile(r"(?<![\w-])--?[a-z]")


class Case(NamedTuple):
    """Wrong values of an option that all faces have, and how each face is asked with one."""

    values: st.SearchStrategy[Any]
    python: Callable[[Any], dict[str, Any]]
    terminal: Callable[[Any], list[str]]
    http: Callable[[Any], dict[str, Any]]
    mcp: Callable[[Any], tuple[str, dict[str, Any]]]
    #: What the message calls the option.
    names: tuple[str, str, str, str]


CASES = {
    "k": Case(
        st.integers(-(10**9), 0),
        lambda k: {"options": {"k": k}, "like": ITEM},
        lambda k: [f"--like={ITEM}", "-k", str(k)],
        lambda k: {"id": ITEM, "k": k},
        lambda k: ("similar", {"id": ITEM, "k": k}),
        ("k", "-k", "k", "k"),
    ),
    "text": Case(
        st.text(" \t\n\u2003", max_size=9),
        lambda text: {"text": text},
        lambda text: [f"--text={text}"],
        lambda text: {"text": text},
        lambda text: ("search", {"text": text}),
        ("text", "--text", "text", "text"),
    ),
    "where": Case(
        st.text("<>=!(", min_size=1, max_size=9),
        lambda where: {"options": {"where": where}, "text": "red"},
        lambda where: ["--text=red", f"--where={where}"],
        lambda where: {"text": "red", "where": where},
        lambda where: ("search", {"text": "red", "where": where}),
        ("where", "--where", "where", "where"),
    ),
    "like": Case(
        st.text("abcü", max_size=9).map("none{}".format),
        lambda name: {"like": name},
        lambda name: [f"--like={name}"],
        lambda name: {"id": name},
        lambda name: ("similar", {"id": name}),
        ("like", "--like", "id", "id"),
    ),
}


@pytest.fixture(scope="module")
def store(client):
    return client.app_store


@pytest.fixture(scope="module")
def tools(folder, model, store):
    from mcp.server.mcpserver import MCPServer

    model.save_pretrained(folder / "model")
    server = MCPServer("channelhash")
    add_tools(server, store, folder / "model", Report.new())
    return server


def ask_tool(server: Any, name: str, values: dict[str, Any]) -> str:
    """Return the one line with which a tool refuses its arguments."""
    from mcp.server.mcpserver.exceptions import ToolError

    with pytest.raises(ToolError) as refused:
        anyio.run(server.call_tool, name, values)
    return str(refused.value).removeprefix(f"Error executing tool {name}: ")


@pytest.mark.parametrize("option", CASES)
@given(st.data())
@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_each_face_shows_its_own_spelling_of_an_option_and_no_other(
    option, client, store, tools, capsys, data
):
    case = CASES[option]
    value = data.draw(case.values)
    python, terminal, http, mcp = case.names
    asked = case.python(value)
    options = asked.pop("options", {})
    line = refusal(lambda: search_store(store, SearchOptions(**options), **asked))
    assert line.startswith(python)
    rest = " ".join(line.removeprefix(python).split())

    capsys.readouterr()
    assert run_command("search", store.address, *case.terminal(value)) == 2
    assert capsys.readouterr().err == f"error: {terminal}{_after(rest)}\n"

    answer = client.post("/search", json=case.http(value))
    assert answer.status_code in (404, 422)
    detail = answer.json()["error"]
    if answer.status_code == 422:
        assert detail == f"{http}{_after(rest)}"
    else:  # of ids alone, without the place of the store
        assert detail == f"there is no item {value!r}"

    assert " ".join(ask_tool(tools, *case.mcp(value)).split()) == f"{mcp}{_after(rest)}"
    for said in (line, detail):
        assert not _OPTION.search(said)


def _after(rest: str) -> str:
    return rest if rest.startswith(":") else f" {rest}"
