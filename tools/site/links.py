"""Look for links of Markdown files that lead nowhere: ``make docs``.

    python tools/site/links.py [FILE.md …]

A relative link has to name a file or folder of the repository, and its anchor a heading of that
page. Addresses of other hosts are not requested: builds stay on the machine.
"""

import re
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from markdown.extensions.toc import slugify
from prose import ROOT, markdown_files

_CODE = re.compile(r"^( *)```.*?^\1```|`[^`\n]+`", re.M | re.S)
_LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")
_OTHER_HOST = re.compile(r"\w+:")
#: Pages and a picture that the build makes from the code (tools/site/hooks.py), whose anchors it
#: checks itself.
_MADE = {
    ROOT / "docs" / name
    for name in ("reference/commands.md", "reference/configuration.md", "images/architecture.svg")
}


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return the anchors of the headings of a Markdown file, and the names that it documents."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    headings = re.findall(r"^#+ +(.*?)\s*$", text, re.M)
    documented = re.findall(r"^::: +(\S+)", text, re.M)
    return frozenset([*(slugify(heading, "-") for heading in headings), *documented])


def dead_links(page: Path) -> list[tuple[int, str]]:
    """Return the lines and targets of a page's links that lead nowhere."""
    text = _CODE.sub(lambda code: re.sub(r"[^\n]", " ", code[0]), page.read_text(encoding="utf-8"))
    found = []
    for link in _LINK.finditer(text):
        if _OTHER_HOST.match(link["target"]):
            continue
        name, _, anchor = link["target"].partition("#")
        target = (page.parent / name).resolve() if name else page
        if target not in _MADE and not (
            target.exists() and (not anchor or anchor in anchors(target))
        ):
            found.append((text.count("\n", 0, link.start()) + 1, link["target"]))
    return found


def main(files: Iterable[Path]) -> int:
    """Print the links of files that lead nowhere; return how many there are."""
    count = 0
    for path in files:
        for line, target in dead_links(path):
            print(f"{path}:{line}: {target} leads nowhere")
            count += 1
    return count


if __name__ == "__main__":
    sys.exit(main([Path(name).resolve() for name in sys.argv[1:]] or markdown_files()) > 0)
