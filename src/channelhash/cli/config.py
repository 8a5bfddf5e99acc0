"""``channelhash config …``"""

from pathlib import Path

import typer

from channelhash.cli.help import GroupedCommands
from channelhash.cli.options import AsJson
from channelhash.cli.output import print_json, print_names
from channelhash.errors import InputError

app = typer.Typer(
    cls=GroupedCommands,
    help="Show and copy the configurations that ship with the package.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
_Name = typer.Argument(..., help="Name of a configuration, as config list prints it.")


@app.callback()
def _begin() -> None:
    """Show and copy the configurations that ship with the package."""


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """List the configurations that `channelhash train --preset NAME` takes.

    Example: channelhash config list
    """
    from channelhash.runs.presets import presets, summary

    found = {name: summary(path) for name, path in presets().items()}
    if as_json:
        print_json(found)
    else:
        print_names(found)


@app.command()
def show(name: str = _Name) -> None:
    """Print a configuration.

    Example: channelhash config show recommended
    """
    from channelhash.runs.presets import preset_path

    typer.echo(preset_path(name).read_text(encoding="utf-8"), nl=False)


@app.command()
def copy(
    name: str = _Name, to: Path | None = typer.Argument(None, help="The new file; NAME.yaml in this folder by default.")
) -> None:
    """Copy a configuration, to change it; `channelhash train FILE` takes the copy.

    Example: channelhash config copy recommended mine.yaml
    """
    from channelhash.runs.presets import preset_path
    from channelhash.utils.files import write_text

    text, target = preset_path(name).read_text(encoding="utf-8"), to or Path(f"{name}.yaml")
    if target.exists():
        raise InputError(f"{target}: is there already; name another file")
    write_text(target, text)
    typer.echo(f"Next: channelhash train {target}")
