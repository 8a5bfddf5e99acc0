"""The command ``channelhash``. The files of this package only parse, call and print."""

import shlex
import sys
import traceback

import typer

from channelhash.cli import (
    benchmark,
    data,
    demo,
    distill,
    duplicates,
    encode,
    evaluate,
    experiment,
    explain,
    export,
    extend,
    index,
    landscape,
    recall,
    report,
    scale,
    search,
    serve,
    train,
)
from channelhash.cli.stopping import next_command, obey_signals
from channelhash.errors import InputError, JobError, NoSpaceError

app = typer.Typer(
    name="channelhash",
    help="Train, evaluate and search short binary codes for pictures and their words.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(data.app, name="data")
app.add_typer(index.app, name="index")
app.add_typer(benchmark.app, name="benchmark")
for command in (
    demo.demo,
    train.train,
    extend.extend,
    distill.distill,
    evaluate.evaluate,
    recall.recall,
    encode.encode,
    search.search,
    duplicates.duplicates,
    explain.explain,
    export.export,
    experiment.experiment,
    landscape.landscape,
    serve.serve,
    report.report,
    scale.scale,
):
    app.command()(command)


def _print_version(value: bool) -> None:
    if value:
        from channelhash._version import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    debug: bool = typer.Option(False, "--debug", help="Show a traceback if something fails."),
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version."),
) -> None:
    """Train, evaluate and search short binary codes for pictures and their words."""


def main() -> None:
    """Run the command line; exit 0, 1 for a failed job, 2 for bad usage or input, 130 or 143 for a signal."""
    debug = "--debug" in sys.argv
    if debug:  # anywhere on the command line
        sys.argv = [sys.argv[0], *[argument for argument in sys.argv[1:] if argument != "--debug"]]
    try:
        with obey_signals():
            app()
    except InputError as error:
        _fail(str(error), 2, debug)
    except NoSpaceError as error:
        _fail(f"{error}, then continue with: {shlex.join(next_command())}", 1, debug)
    except JobError as error:
        _fail(str(error), 1, debug)
    except OSError as error:
        file = f"{error.filename}: " if error.filename else ""
        _fail(f"{file}{error.strerror or error}", 1, debug)
    except MemoryError as error:
        reason = f" ({error})" if str(error) else ""
        _fail(f"out of memory{reason}; take a smaller input, or a machine with more memory", 1, debug)
    except Exception as error:
        _fail(f"{type(error).__name__}: {error}; this is a bug, please report it; --debug shows where", 1, debug)


def _fail(message: str, status: int, debug: bool) -> None:
    if debug:
        traceback.print_exc()
    typer.echo(f"error: {' '.join(message.split())}", err=True)
    sys.exit(status)


if __name__ == "__main__":
    main()
