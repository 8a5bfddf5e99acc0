"""Arguments and options that several commands share, declared once; their help in groups, as wide as the terminal."""

import shutil
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

Modality = Literal["image", "text"]


def _consent(context: typer.Context, trust_code: bool) -> bool:
    """Apply the option to everything that its command reads."""
    from channelhash.utils.typed_settings import trusting

    context.with_resource(trusting(trust_code))
    return trust_code


SavedModel = Annotated[Path, typer.Argument(help="A run's folder or a saved model.")]
SearchableStore = Annotated[str, typer.Argument(help="A store, a run's folder, a file of codes, or postgresql://….")]

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]
Captions = Annotated[Path | None, typer.Option(help="Captions of a folder's pictures: a table, or name#0<TAB>caption.")]
Encoder = Annotated[
    list[str],
    typer.Option(
        help="What reads a folder's pictures: photo (the default), openclip:NAME/WEIGHTS, features, a run, or "
        "image=KIND:WHAT and text=KIND:WHAT."
    ),
]
Exclude = Annotated[
    list[str], typer.Option(metavar="PATTERN", help="Leave out such files of a folder, as in a .gitignore: 'raw/'.")
]
Ocr = Annotated[
    bool | None,
    typer.Option(help="Read the text in pictures, stored ones, too; by default in a folder's new ones, if installed."),
]
Overrides = Annotated[list[str], typer.Option("--set", help="Override a key: section.key=value. May be repeated.")]
Quick = Annotated[bool, typer.Option("--quick", help="Use a small data set and few epochs, only to try it out.")]
Seed = Annotated[int, typer.Option(help="Random seed.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Leave out bad rows and unreadable pictures, and list them.")]
TableRoot = Annotated[Path | None, typer.Option(help="Folder that a table's picture paths are relative to.")]
TrustCode = Annotated[
    bool, typer.Option("--trust-code", callback=_consent, help="Run code that a folder names (python:module:NAME).")
]
Where = Annotated[str | None, typer.Option(help="Only items that pass a filter: \"label = 'dog' AND year > 2019\".")]


class _Commands(TyperGroup):
    """A group whose help shows a whole sentence of each command, wrapped and not cut at a number of letters."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the section of the commands."""
        commands: list[Any] = [self.get_command(ctx, name) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(command.name, command.get_short_help_str(1000)) for command in commands])


def command_group(purpose: str, **settings: Any) -> typer.Typer:
    """Return a group of commands, whose help has ``-h`` and is as wide as the terminal."""
    width = shutil.get_terminal_size().columns
    context = {"help_option_names": ["-h", "--help"], "max_content_width": width}
    return typer.Typer(
        cls=_Commands, help=purpose, context_settings=context, no_args_is_help=True, rich_markup_mode=None, **settings
    )
