"""The page "Commands", made from the commands themselves: what `--help` says, one section a
command.
"""

import re
from typing import Any

import typer

from channelhash.cli.main import app

_INTRODUCTION = """# Commands

This page shows the help of every command, `channelhash COMMAND --help`.

`--json` prints exactly one JSON object on stdout; progress and messages go to stderr. The exit status is 0 for success,
1 for a failed job, and 2 for bad usage or input. An error is one line that says what is wrong, where, and what to do;
`channelhash --debug COMMAND …` shows the traceback.
"""


def commands_page() -> str:
    """Return the page as Markdown."""
    root = typer.main.get_command(app)
    sections = [_section(path, command) for path, command in leaves(root)]
    return "\n".join([_INTRODUCTION, *sections])


def leaves(group: Any, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    """All commands below a group as (words after ``channelhash``, command), in the order of its
    help.
    """
    found = []
    for name, command in group.commands.items():
        here = (*path, name)
        found += leaves(command, here) if hasattr(command, "commands") else [(here, command)]
    return found


def _section(path: tuple[str, ...], command: Any) -> str:
    context = command.make_context(" ".join(("channelhash", *path)), [], resilient_parsing=True)
    paragraphs = (command.help or "").split("\n\n")
    text = [
        _one_line(paragraph) for paragraph in paragraphs if not paragraph.startswith("Example: ")
    ]
    examples = [
        _one_line(paragraph)[len("Example: ") :]
        for paragraph in paragraphs
        if paragraph.startswith("Example: ")
    ]
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    lines = [
        f"## {' '.join(path)}",
        "",
        *(f"{paragraph}\n" for paragraph in text),
        f"```\n{usage}\n```",
        "",
    ]
    if examples:
        lines += ["```sh", *examples, "```", ""]
    records = [parameter.get_help_record(context) for parameter in command.get_params(context)]
    rows = [
        f"| {_code(_plain(name))} | {_cell(said)} |"
        for name, said in filter(None, records)
        if name != "--help"
    ]
    if rows:
        lines += ["| argument or option | |", "|---|---|", *rows, ""]
    return "\n".join(lines)


def _plain(name: str) -> str:
    """Return an option with the type of one value, ``<str> …`` for ``<list[str]>``, and its range
    after its words.
    """
    return re.sub(r"<list\[(.*)\]>", r"<\1> …", name).replace(" range>", ">")


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _code(text: str) -> str:
    return f"`{_one_line(text)}`"  # a | within it is no end of a cell


def _cell(text: str) -> str:
    return (
        _one_line(text)
        .replace("|", "\\|")
        .replace("<", "&lt;")
        .replace("*", "\\*")
        .replace("[", "\\[")
    )
