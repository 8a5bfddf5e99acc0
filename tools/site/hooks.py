"""What `mkdocs build` does beside building: pages and a picture made from the code, and a look at
the result.

* `reference/commands.md`, `reference/configuration.md` and `images/architecture.svg` are made anew
  by each build.
* A built page that would load anything from another host fails the build.
* Links to folders, and to files of the repository outside docs/, become plain text: the site stands
  alone.
"""

import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from architecture import draw
from commands import commands_page
from configuration import configuration_page
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

_MADE: dict[str, Callable[[], str]] = {
    "reference/commands.md": commands_page,
    "reference/configuration.md": configuration_page,
    "images/architecture.svg": draw,
}


def on_files(files: Files, config: MkDocsConfig, **_: Any) -> Files:
    """Add what is made from the code."""
    for path, make in _MADE.items():
        files.append(File.generated(config, path, content=make()))
    return files


def on_page_markdown(markdown: str, page: Any, config: MkDocsConfig, **_: Any) -> str:
    """Links that the forge can follow and the site cannot, as plain text."""
    root = Path(config.docs_dir).resolve()

    def unless_inside(link: re.Match[str]) -> str:
        target = ((root / page.file.src_uri).parent / link["target"]).resolve()
        return link[0] if root in target.parents and not target.is_dir() else link["text"]

    return re.sub(
        r"(?<!!)\[(?P<text>[^]]+)\]\((?P<target>(?!\w+:)[^)#\s]+)\)", unless_inside, markdown
    )


def on_post_build(config: MkDocsConfig, **_: Any) -> None:
    """Refuse a site that loads something from elsewhere."""
    found = [
        line
        for path in sorted(Path(config.site_dir).rglob("*"))
        for line in foreign_resources(path)
    ]
    if found:
        raise PluginError("the site would load from other hosts:\n" + "\n".join(found))


def foreign_resources(path: Path) -> list[str]:
    """Return what a built HTML or CSS file loads from another host, a line each; links to click on
    do not count.
    """
    if path.suffix == ".css":
        text = path.read_text(encoding="utf-8")
        found = re.findall(r"""(?:url\(|@import\s+)['"]?((?:https?:)?//[^'")\s]+)""", text)
    elif path.suffix == ".html":
        page = _Loaded()
        page.feed(path.read_text(encoding="utf-8"))
        found = page.foreign
    else:
        found = []
    return [f"{path}: {address}" for address in found]


class _Loaded(HTMLParser):
    """Addresses on other hosts that a browser fetches by itself when it shows a page."""

    _LINKS = frozenset({"canonical", "next", "prev", "author", "license", "edit", "alternate"})

    def __init__(self) -> None:
        super().__init__()
        self.foreign: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        names = ["src", "srcset", "data", "poster"] if tag != "a" else []
        if tag == "link" and values.get("rel") not in self._LINKS:
            names.append("href")
        self.foreign += [
            value
            for name in names
            if (value := values.get(name)) and re.match(r"(https?:)?//", value)
        ]
