"""The command ``channelhash``. The files of this package only parse, call and print."""

import io
import shlex
import sys
import traceback
from collections.abc import Callable

import typer

from channelhash.cli import (
    data,
    evaluate,
    experiment,
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
    "duplicates": search.duplicates,
    "index": index.app,
    "encode": evaluate.encode,
    "explain": search.explain,
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
    "Train, evaluate and search short binary codes for pictures and their words.",
    name="channelhash",
    pretty_exceptions_enable=False,
)
for _name, _command in _COMMANDS.items():
    if isinstance(_command, typer.Typer):
        app.add_typer(_command, name=_name)
    else:
        app.command(_name)(_command)


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
    """Train, evaluate and search short binary codes for pictures and their words."""


def main() -> None:
    """Run the command line; exit 0, 1 for a failed job, 2 for bad usage or input, 130 or 143 for a
    signal.
    """
    for stream in (sys.stdout, sys.stderr):
        # A terminal or a file that lacks κ or → has \u03ba and \u2192 instead of an error.
        if isinstance(stream, io.TextIOWrapper) and (
            stream.errors == "strict" or "utf" not in stream.encoding.lower()
        ):
            stream.reconfigure(errors="backslashreplace")
    debug = "--debug" in sys.argv
    # anywhere on the command line
    sys.argv = [argument for argument in sys.argv if argument != "--debug"]
    resolved.clear()
    try:
        for argument in sys.argv:
            check_address(argument)  # before anything repeats it
        with obey_signals(), naming_extra():
            app()
    except NoSpaceError as error:
        _fail(f"{error}, then continue with: {shlex.join(next_command())}", 1, debug)
    except (InputError, JobError) as error:
        _fail(error.spelled(_option), 2 if isinstance(error, InputError) else 1, debug)
    except OSError as error:
        file = f"{error.filename}: " if error.filename else ""
        remedy = "; change its rights, or run as its owner" * isinstance(error, PermissionError)
        _fail(failing_line(error) or f"{file}{error.strerror or error}{remedy}", 1, debug)
    except MemoryError as error:
        reason = f" ({error})" if str(error) else ""
        _fail(
            f"out of memory{reason}; take a smaller input, or a machine with more memory", 1, debug
        )
    except Exception as error:  # whatever is left is said in one line, too
        cause = failing_line(error) or failing_code(error)
        cause = cause or f"{type(error).__name__}: {error}; this is a bug, please report it"
        _fail(f"{cause}; --debug shows where", 1, debug)


def _option(name: str) -> str:
    """Return an argument of the library as the option of the command line.

    >>> _option("k"), _option("minus_like")
    ('-k', '--minus-like')
    """
    return f"-{name}" if len(name) == 1 else f"--{name.replace('_', '-')}"


def _fail(message: str, status: int, debug: bool) -> None:
    if debug:
        typer.echo(hide_secrets(traceback.format_exc()), err=True, nl=False)
    typer.echo(f"error: {shared.printable(hide_secrets(' '.join(message.split())))}", err=True)
    sys.exit(status)


if __name__ == "__main__":
    main()
