"""The command ``channelhash``. The files of this package only parse, call and print."""

import io
import shlex
import sys
import traceback
from collections.abc import Callable

import typer

from channelhash.cli import (
    compress,
    data,
    duplicates,
    evaluate,
    experiment,
    explain,
    index,
    next_command,
    obey_signals,
    search,
    serve,
    shared,
    train,
)
from channelhash.errors import InputError, JobError, NoSpaceError, check_address, hide_secrets
from channelhash.utils.optional_imports import naming_extra
from channelhash.utils.typed_settings import failing_code, failing_line, resolved

#: The commands in the order of the help: search, train, measure; a group of commands by its name.
_COMMANDS: dict[str, Callable[..., None] | typer.Typer] = {
    "search": search.search,
    "serve": serve.serve,
    "mcp": serve.mcp,
    "duplicates": duplicates.duplicates,
    "index": index.app,
    "compress": compress.compress,
    "encode": evaluate.encode,
    "explain": explain.explain,
    "demo": train.demo,
    "train": train.train,
    "extend": train.extend,
    "distill": train.distill,
    "export": train.export,
    "data": data.app,
    "config": train.configurations,
    "list": train.names,
    "evaluate": evaluate.evaluate,
    "recall": evaluate.recall,
    "report": experiment.report,
    "experiment": experiment.experiment,
    "landscape": experiment.landscape,
}

app = shared.command_group(
    "Train, evaluate and search short binary codes for images and their words.",
    name="channelhash",
    pretty_exceptions_enable=False,
)
for _name, _command in _COMMANDS.items():
    if isinstance(_command, typer.Typer):
        app.add_typer(_command, name=_name)
    else:
        app.command(_name, cls=search.SearchCommand if _name == "search" else None)(_command)


def _print_version(value: bool) -> None:
    if value:
        from channelhash._version import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    debug: bool = typer.Option(False, "--debug", help="Show a traceback if something fails."),
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """Train, evaluate and search short binary codes for images and their words."""


def main() -> None:
    """Run the command line; exit 0, 1 for a failed job, 2 for bad usage or input, 130 or 143 for a
    signal.
    """
    for stream in (sys.stdout, sys.stderr):
        _escape_missing_characters(stream)
    debug = "--debug" in sys.argv
    # anywhere on the command line
    sys.argv = [word for word in sys.argv if word != "--debug"]
    resolved.clear()
    try:
        for word in sys.argv:
            check_address(word)  # before anything repeats it
        with obey_signals(), naming_extra():
            app()
    except Exception as error:
        if debug:
            typer.echo(hide_secrets(traceback.format_exc()), err=True, nl=False)
        line = shared.printable(hide_secrets(" ".join(_line_of(error).split())))
        typer.echo(f"error: {line}", err=True)
        sys.exit(2 if isinstance(error, InputError) else 1)


def _escape_missing_characters(stream: object) -> None:
    """Let a terminal or a file that lacks κ or → show \\u03ba and \\u2192 instead of failing."""
    if isinstance(stream, io.TextIOWrapper):
        has_all = "utf" in stream.encoding.lower()
        if stream.errors == "strict" or not has_all:
            stream.reconfigure(errors="backslashreplace")


def _line_of(error: Exception) -> str:
    """Return what the user is told of an error."""
    if isinstance(error, NoSpaceError):
        return f"{error}, then continue with: {shlex.join(next_command())}"
    if isinstance(error, InputError | JobError):
        return error.spelled(spell_option)
    if isinstance(error, OSError):
        return failing_line(error) or _os_line(error)
    if isinstance(error, MemoryError):
        reason = f" ({error})" if str(error) else ""
        return f"out of memory{reason}; take a smaller input, or a machine with more memory"
    cause = failing_line(error) or failing_code(error)
    cause = cause or f"{type(error).__name__}: {error}; this is a bug, please report it"
    return f"{cause}; --debug shows where"


def _os_line(error: OSError) -> str:
    """Return the file and the reason of an error of the system, and a remedy if there is one.

    >>> _os_line(PermissionError(13, "Permission denied", "a.csv"))
    'a.csv: Permission denied; change its rights, or run as its owner'
    """
    file = f"{error.filename}: " if error.filename else ""
    remedy = "; change its rights, or run as its owner" * isinstance(error, PermissionError)
    return f"{file}{error.strerror or error}{remedy}"


#: Argument of the library -> option of the command line, where they have different names.
_OPTIONS = {
    "base": "dataset",
    "codes": "method",
    "count": "workers",
    "folder": "out",
    "images": "image",
    "likes": "like",
    "losses": "loss",
    "n_bits": "bits",
    "names": "array",
    "overrides": "set",
    "places": "data",
    "texts": "text",
}


def spell_option(name: str) -> str:
    """Return an argument of the library as the option of the command line.

    >>> spell_option("k"), spell_option("minus_like"), spell_option("overrides")
    ('-k', '--minus-like', '--set')
    """
    option = _OPTIONS.get(name, name).replace("_", "-")
    return f"-{option}" if len(option) == 1 else f"--{option}"


if __name__ == "__main__":
    main()
