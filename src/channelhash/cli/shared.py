"""What commands share: arguments and options, declared once, and their help in groups, as wide as
the terminal; and output: tables, progress bars with a rate and an end time, JSON.
"""

import json
import os
import shutil
import threading
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from typer.core import TyperGroup

from channelhash.cli import same_command, when_stopped
from channelhash.utils.progress import StageProgress


def _consent(context: typer.Context, trust_code: bool) -> bool:
    """Apply the option to everything that its command reads."""
    from channelhash.utils.typed_settings import trusting

    context.with_resource(trusting(trust_code))
    return trust_code


SavedModel = Annotated[Path, typer.Argument(help="A run's folder, a saved model or a store.")]
SearchableStore = Annotated[
    str,
    typer.Argument(
        metavar="FOLDER|STORE",
        help="A folder of photographs, a store, a run's folder, a file of codes, or "
        "postgresql://….",
    ),
]

Array = Annotated[
    str | None, typer.Option(help="The array or column of vectors, where there are several.")
]
Ids = Annotated[Path | None, typer.Option(help="Text file of the vectors' ids, one a line.")]
Modality = Literal["image", "text", "vector"]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]
Captions = Annotated[
    Path | None,
    typer.Option(help="Captions of a folder's images: a table, or name#0<TAB>caption."),
]
EncoderWords = Annotated[
    list[str],
    typer.Option(
        help="What reads a folder's images: photo (the default), openclip:NAME/WEIGHTS, "
        "onnx:FOLDER, features, a run, or image=KIND:WHAT and text=KIND:WHAT."
    ),
]
Exclude = Annotated[
    list[str],
    typer.Option(
        metavar="PATTERN",
        help="Leave out such files or paths of a folder, as in a .gitignore: raw/.",
    ),
]
Overrides = Annotated[
    list[str], typer.Option("--set", help="Override a key: section.key=value. May be repeated.")
]
Quick = Annotated[
    bool, typer.Option("--quick", help="Use a small data set and few epochs, only to try it out.")
]
Seed = Annotated[int, typer.Option(help="Random seed.")]
SkipBad = Annotated[
    bool,
    typer.Option("--skip-bad", help="Leave out bad rows and unreadable images, and list them."),
]
TableRoot = Annotated[
    Path | None, typer.Option(help="Folder that a table's image paths are relative to.")
]
TrustCode = Annotated[
    bool,
    typer.Option(
        "--trust-code", callback=_consent, help="Run code that a folder names (python:module:NAME)."
    ),
]
Where = Annotated[
    str | None,
    typer.Option(help="Only items that pass a filter: \"label = 'dog' AND year > 2019\"."),
]


class _Commands(TyperGroup):
    """A group whose help wraps the sentence about each command instead of cutting it."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the section of the commands."""
        commands: list[Any] = [self.get_command(ctx, name) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(
                [(command.name, command.get_short_help_str(1000)) for command in commands]
            )


def command_group(purpose: str, **settings: Any) -> typer.Typer:
    """Return a group of commands, whose help has ``-h`` and is as wide as the terminal."""
    width = shutil.get_terminal_size().columns
    context = {"help_option_names": ["-h", "--help"], "max_content_width": width}
    return typer.Typer(
        cls=_Commands,
        help=purpose,
        context_settings=context,
        no_args_is_help=True,
        rich_markup_mode=None,
        **settings,
    )


#: Progress and remarks go to stderr, so that stdout holds only results.
#: Names and captions are text, never rich's markup or emoji codes.
_messages = Console(stderr=True, highlight=False, markup=False, emoji=False)
_results = Console(highlight=False, markup=False, emoji=False)
# Without a terminal nothing has to fit: lines are for files and other programs.
_wide = Console(width=10_000, highlight=False, markup=False, emoji=False)
#: Seconds between two lines of progress if there is no terminal.
_SECONDS = 15.0


def print_json(result: Mapping[str, Any]) -> None:
    """Print one JSON object on stdout and nothing else.

    >>> print_json({"epochs": 3, "run": "runs/a"})
    {"epochs": 3, "run": "runs/a"}
    """
    print(json.dumps(result, default=str))


def show(result: Mapping[str, Any], as_json: bool, *lines: str) -> None:
    """Print the result of a command, as one JSON object or in lines."""
    print_either(result, as_json, typer.echo, "\n".join(lines))


def print_either(
    result: Mapping[str, Any], as_json: bool, function: Callable[..., None], *arguments: Any
) -> None:
    """Print the result of a command, as one JSON object or by ``function`` of ``arguments``."""
    if as_json:
        print_json(result)
    else:
        function(*arguments)


def say(line: str) -> None:
    """Print one line of remarks on stderr, however long."""
    _messages.print(printable(line), soft_wrap=True)


def say_left_out(problems: Sequence[str], most: int | None = None) -> None:
    """Say what was left out, a line each; of many the first ``most``."""
    for line in problems[:most]:
        say(f"left out: {line}")
    if most is not None and len(problems) > most:
        say(f"left out: {len(problems) - most:,} more; --json lists all")


def printable(text: str, lines: bool = False) -> str:
    """Return a text with control characters as escapes: names may hold line ends, and codes that
    steer a terminal.

    >>> print(printable("a\\nb.jpg"))
    a\\nb.jpg
    """
    controls = {sign for sign in text if unicodedata.category(sign) == "Cc"} - (
        {"\n"} if lines else set()
    )
    return text.translate({ord(sign): sign.encode("unicode_escape").decode() for sign in controls})


@contextmanager
def progress_bars(
    message: str | None = None, go_on: Callable[[], list[str]] = same_command
) -> Iterator[StageProgress]:
    """Show the progress of a long job: bars with count, speed and time left; without a terminal a
    line now and then.

    With a ``message``, the job also unwinds when a signal stops it, see `when_stopped`.
    """
    if message is not None:
        when_stopped(message, go_on)
    columns = (
        TextColumn("{task.description:<22}", markup=False),
        BarColumn(bar_width=min(24, max(4, _messages.width - 66))),
        MofNCompleteColumn(),
        TextColumn("{task.fields[speed]}", markup=False),
        TextColumn("{task.fields[note]}", markup=False),
        TimeRemainingColumn(),
    )
    # the terminal of a notebook's ! cannot move its cursor up
    no_bars = not _messages.is_terminal or "JPY_PARENT_PID" in os.environ
    seconds = 0 if no_bars else 30  # of steps from which a bar estimates the time left
    bars = Progress(*columns, console=_messages, disable=no_bars, speed_estimate_period=seconds)
    ended = threading.Event()
    if no_bars:
        threading.Thread(target=_log, args=(bars, ended), daemon=True).start()
    try:
        with bars:
            yield lambda name: _Stage(bars, name)
    finally:
        ended.set()


class _Stage:
    """A stage of a job, with a new bar each time it begins.

    Without bars, a stage that counts nothing is named at once.
    """

    def __init__(self, bars: Progress, name: str) -> None:
        self._bars = bars
        bars.add_task(printable(name), total=None, speed="", note="", last=bars.get_time())
        self._task = bars.tasks[-1]

    def __call__(self, done: int, total: int) -> None:
        if self._bars.disable and not total:
            say(self._task.description)
        speed = _speed(done, self._task.elapsed or 0)
        last = self._bars.get_time()
        self._bars.update(self._task.id, completed=done, total=total, speed=speed, last=last)

    def note(self, text: str) -> None:
        self._bars.update(self._task.id, note=printable(text))


def _log(bars: Progress, ended: threading.Event) -> None:
    """Say every `_SECONDS` how far the last stage is, whether or not it reports: no job is silent
    for longer.
    """
    began = bars.get_time()
    while not ended.wait(_SECONDS):
        so_far = f"{clock(bars.get_time() - began)} so far"
        stages = sorted(bars.tasks, key=lambda task: task.fields["last"])
        say(_line(stages[-1], so_far) if stages else so_far)


def _line(stage: Task, so_far: str) -> str:
    """Return count, note, rate and time left of a stage; of one that has ended, the time so far."""
    done = stage.completed
    total = stage.total or 0
    last = stage.fields["last"]
    if done >= total:
        return f"{'after ' if total else ''}{stage.description}, {so_far}"
    words = [f"{done:,} of {total:,}", stage.fields["note"], stage.fields["speed"]]
    if done:
        rest = (total - done) * (last - (stage.start_time or last)) / done - (
            stage.get_time() - last
        )
        words.append(f"{clock(max(0, rest))} left")
    return f"{stage.description} {', '.join(filter(None, words))}"


def clock(seconds: float) -> str:
    """Return hours, minutes and seconds.

    >>> clock(90.4)
    '0:01:30'
    """
    return str(timedelta(seconds=round(seconds)))


def _speed(done: int, seconds: float) -> str:
    """Return items a second, or seconds an item if one takes longer than a second.

    >>> _speed(30, 10.0), _speed(3, 31.0), _speed(0, 1.0)
    ('3.0/s', '10.3 s each', '')
    """
    if not done or seconds <= 0:
        return ""
    return f"{done / seconds:,.1f}/s" if done > seconds else f"{seconds / done:,.1f} s each"


def print_table(
    title: str,
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    footer: Sequence[str] | None = None,
    numeric: bool = False,
) -> None:
    """Print a table; ``numeric`` aligns all columns but the first to the right."""
    _results.print(printable(title), soft_wrap=True)
    table = Table()
    for place, name in enumerate(header):
        table.add_column(
            printable(name), justify="right" if numeric and place else "left", overflow="fold"
        )
    for row in rows:
        table.add_row(*(printable(cell, lines=True) for cell in row))
    if footer:
        table.add_section()
        table.add_row(*footer)
    (_results if _results.is_terminal or "COLUMNS" in os.environ else _wide).print(table)


def percent(share: float | None, digits: int = 1) -> str:
    """Format a share as percent, an undefined one as a dash.

    >>> percent(0.1234), percent(None)
    ('12.3', '–')
    """
    return "–" if share is None else f"{100 * share:.{digits}f}"


def print_plan(title: str, plan: Mapping[str, Any]) -> None:
    """Print the nested plan of a training, and say its problems; a part's name stands before its
    keys.
    """
    parts = dict(plan)
    problems = parts.pop("problems")
    rows = []
    for part, value in parts.items():
        for key, inner in value.items() if isinstance(value, dict) else [("", value)]:
            shown = f"{inner:,}" if isinstance(inner, int | float) else str(inner)
            rows.append([f"{part}: {key}" if key else part, shown])
    print_table(title, ["what", "value"], rows)
    for line in problems:
        say(f"problem: {line}")


def print_names(names: Mapping[str, str], as_json: bool) -> None:
    """Print names and what they mean, as one JSON object or in two columns without a frame."""
    table = Table.grid(padding=(0, 2))
    for row in names.items():
        table.add_row(*row)
    print_either(names, as_json, _results.print, table)
