"""Show the examples of docstrings as code. Unfenced, Markdown takes ``>>>`` for quotations and
``[a][b]`` for links.
"""

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^( *)>>> .*(?:\n(?!\n).+)*", re.MULTILINE)


def fence_examples(docstring: str) -> str:
    """Return a docstring whose examples are fenced blocks.

    >>> print(fence_examples("Add.\\n\\n>>> 1 + 1\\n2"))
    Add.
    <BLANKLINE>
    ```pycon
    >>> 1 + 1
    2
    ```
    """
    return _EXAMPLE.sub(lambda block: f"{block[1]}```pycon\n{block[0]}\n{block[1]}```", docstring)


class FencedExamples(griffe.Extension):
    """Fence the examples of everything that the reference shows."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of one object before it is parsed."""
        if obj.docstring is not None:
            obj.docstring.value = fence_examples(obj.docstring.value)
