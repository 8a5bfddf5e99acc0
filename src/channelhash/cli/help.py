"""Help of the command line: commands in groups, as wide as the terminal, by ``-h`` too."""

import shutil
from typing import Any

from typer.core import TyperGroup

_WHOLE = 1000  # letters of a command's first sentence; it is wrapped, not cut


class GroupedCommands(TyperGroup):
    """A group whose help shows a sentence of each command, under the headings that they are registered with."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a section for each heading, in the order of the first command of each."""
        sections: dict[str, list[Any]] = {}
        for name in self.list_commands(ctx):
            command: Any = self.get_command(ctx, name)
            sections.setdefault(command.rich_help_panel or "Commands", []).append(command)
        longest = max(len(command.name) for commands in sections.values() for command in commands)
        for heading, commands in sections.items():
            with formatter.section(heading):
                formatter.write_dl(
                    [(f"{command.name:<{longest}}", command.get_short_help_str(_WHOLE)) for command in commands]
                )


def context_settings() -> dict[str, Any]:
    """Return what every command's help has: ``-h``, and the width of the terminal."""
    return {"help_option_names": ["-h", "--help"], "max_content_width": shutil.get_terminal_size().columns}
