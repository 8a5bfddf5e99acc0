"""What a search was asked, part by part, so that a page can show it and take parts away."""

from collections.abc import Sequence
from typing import Literal

from channelhash.search.question import Part
from channelhash.serve.schemas import SearchOptions, SearchRequest, Understood


def understood(options: SearchOptions, words: Sequence[Part], image: bool = False) -> list[Understood]:
    """Return the parts of a search: what is wanted, what is not, and what the answers are narrowed to.

    Args:
        options: the request.
        words: the parts of its text.
        image: whether an image came with it.

    >>> from channelhash.search.question import parse_question
    >>> parts = understood(SearchOptions(month="2019-07"), parse_question("a dog -people"))
    >>> [(part.kind, part.value) for part in parts]
    [('words', 'a dog'), ('without', 'people'), ('month', '2019-07')]
    """
    found = [Understood(kind="image", value="")] * image
    if isinstance(options, SearchRequest):
        found += [Understood(kind="item", value=options.id)] if options.id is not None else []
        found += [Understood(kind="code", value=options.code)] if options.code is not None else []
    for part in words:
        found.append(_words("without" if part.weight < 0 else "words", part))
    found += [Understood(kind="without", value=what) for what in options.minus]
    if isinstance(options, SearchRequest):
        found += [Understood(kind="without_item", value=item_id) for item_id in options.minus_ids]
    found += [Understood(kind="label", value=label) for label in options.label]
    found += [Understood(kind="folder", value=options.folder)] if options.folder else []
    found += [Understood(kind="month", value=options.month)] if options.month else []
    found += [Understood(kind="where", value=options.where)] if options.where else []
    return found


def _words(kind: Literal["words", "without"], part: Part) -> Understood:
    return Understood(kind=kind, value=part.content, weight=abs(part.weight))
