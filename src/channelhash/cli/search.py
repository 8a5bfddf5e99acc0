"""``channelhash search``."""

import re
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperCommand, TyperOption

from channelhash.cli import shared
from channelhash.cli.stores import IndexOptions, StoreModel, open_searched
from channelhash.errors import InputError

if TYPE_CHECKING:
    from channelhash.data.vectors import Vectors
    from channelhash.search import Store
    from channelhash.search.hits import Hit, Hits
    from channelhash.search.question import SearchOptions

Sheet = Annotated[
    Path | None, typer.Option(help="Also draw the result as a PNG file with this name.")
]
_By = Literal["all", "image", "text", "vector", "words"]
#: Images that --open shows.
_OPENED = 3
#: What a question that begins with an unwanted word begins with.
_MINUS_WORD = re.compile(r"-[^\W\d_]{2}")


class SearchCommand(TyperCommand):
    """A command whose question may begin with an unwanted word, such as "-koala"."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read such a question as if it stood behind "--". Options in one letter may stand
        together, and a long one with a single dash is still wrong.
        """
        options = dict[str, TyperOption]()
        for param in self.params:
            if isinstance(param, TyperOption):
                options |= dict.fromkeys((*param.opts, *param.secondary_opts), param)
        plain = list[str]()
        questions = list[str]()
        for before, word in zip(["", *args], args, strict=False):
            is_value = before in options and not options[before].is_flag
            is_question = not is_value and _is_question(word, options)
            (questions if is_question else plain).append(word)
        if questions and "--" not in args:
            args = [*plain, "--", *questions]
        return super().parse_args(ctx, args)


def _is_question(word: str, options: Collection[str]) -> bool:
    """Return whether a word with a dash is a question, as no options may be meant.

    >>> [_is_question(word, ["-k", "-q", "--json"]) for word in ("-koala", "-json", "-qk5", "-k")]
    [True, False, False, False]
    """
    letters = re.sub(r"\d", "", word[1:])
    are_options = all(f"-{letter}" in options for letter in letters)
    is_option = are_options or f"-{word}" in options
    return bool(_MINUS_WORD.match(word)) and not is_option


def search(
    store: shared.SearchableStore,
    question: str | None = typer.Argument(
        None, help='Words: "a beach" or, in parts, \'beach "two dogs"^2 -people\'.'
    ),
    text: str | None = typer.Option(None, help="The query in words, as an option."),
    image: Path | None = typer.Option(None, help="Search with an image."),
    like: str | None = typer.Option(
        None, help="Search with the codes of the item that has this id."
    ),
    vector: Path | None = typer.Option(
        None, help="Search a store of vectors with those of this file, one by one."
    ),
    array: shared.Array = None,
    minus: list[str] = typer.Option(
        [], help="Words or an image that are not wanted. May be repeated."
    ),
    minus_like: list[str] = typer.Option(
        [], help="Id of an item that is not wanted. May be repeated."
    ),
    by: _By | None = typer.Option(
        None, help="Search codes, words or all. With --like alone: by which code."
    ),
    modality: shared.Modality | None = typer.Option(
        None, help="Modality to search; images if there are any."
    ),
    k: int = typer.Option(10, "-k", help="Number of results."),
    radius: int | None = typer.Option(
        None, help="Return all items within this many bits, instead of -k."
    ),
    where: shared.Where = None,
    collapse: bool | None = typer.Option(
        None, help="Fold near-duplicates into the nearest; images by default, without --radius."
    ),
    model: StoreModel = None,
    encoder: shared.EncoderWords = [],
    captions: shared.Captions = None,
    exclude: shared.Exclude = [],
    sheet: Sheet = None,
    view: bool = typer.Option(
        False, "--open", help="Open the sheet, or else the images of the best answers."
    ),
    everything: bool = typer.Option(
        False, "--all", help="Also show answers that are less likely to fit."
    ),
    quiet: bool = typer.Option(False, "-q", "--quiet", help="Print nothing but paths, one a line."),
    trust_code: shared.TrustCode = False,
    as_json: shared.AsJson = False,
) -> None:
    """Find the items that answer words, an image, another item, or several of them together.

    Example: channelhash search photos "a dog on a beach -people" -k 5
    """
    from channelhash.duplicates import regroup
    from channelhash.search.hits import Hits
    from channelhash.search.query import search_store
    from channelhash.search.question import SearchOptions

    words = _words_of(question, text)
    questions = _load_questions(vector, array, bool(sheet or view))
    options = SearchOptions(k, radius, None, modality, where, collapse, regroup=regroup)
    index_options = IndexOptions(model, encoder, captions, exclude)
    opened, problems = open_searched(store, index_options, by == "words")
    ask = partial(
        search_store,
        opened,
        options,
        text=words,
        image=image,
        like=like,
        by=by,
        minus=list(map(_image_or_words, minus)),
        minus_like=minus_like,
    )
    with opened:
        if questions is None:
            answers = {"": ask(model=model)}
        else:
            answers = _ask_with_vectors(ask, questions, opened, model)
    if len(answers) > 1:
        _say_remarks(next(iter(answers.values())))
        _print_all(answers, as_json, quiet)
        return
    [hits] = answers.values()
    shown = hits if everything else Hits(hit for hit in hits if hit.fits)
    _say_remarks(hits)
    is_table = not (as_json or quiet)
    if as_json:
        shared.print_json(_as_object(hits, problems))
    elif quiet:
        _print_paths(shown)
    else:
        _print_answers(hits, shown, options, store)
    if sheet:
        draw_sheet(partial(shown.draw, _first_given(words, image, like)), sheet, named=is_table)
    if view:
        _open_files([str(sheet.absolute())] if sheet else _images_of(shown))


def _ask_with_vectors(
    ask: Callable[..., "Hits"], questions: "Vectors", store: "Store", model: Path | None
) -> dict[str, "Hits"]:
    """Return the answers to each vector, by its id."""
    from channelhash.search.query import load_query_encoder

    encoder = load_query_encoder(store, model)
    rows = zip(questions.ids, questions[:], strict=True)
    return {name: ask(vector=row, model=encoder) for name, row in rows}


def _load_questions(file: Path | None, array: str | None, are_shown: bool) -> "Vectors | None":
    """Read the vectors that ask, None without a file. Only the answers to one are shown as
    images.
    """
    from channelhash.data.vectors import load_vectors

    if file is None:
        if array is not None:
            raise InputError("--array: says what of a file of vectors asks; name it with --vector")
        return None
    questions = load_vectors(file, array, skip_bad=True)
    if questions.problems:
        raise InputError(f"--vector: {questions.problems[0]}; take such rows out")
    if are_shown and len(questions) > 1:
        raise InputError(
            f"--sheet and --open: show the answers to one vector, {file} holds {len(questions)}; "
            "leave them out"
        )
    return questions


def _print_all(answers: Mapping[str, "Hits"], as_json: bool, quiet: bool) -> None:
    """Print the answers to several questions: a line an answer, with the question's id first."""
    if as_json:
        objects = [{"question": name, **_as_object(hits, [])} for name, hits in answers.items()]
        shared.print_json({"answers": objects})
        return
    for name, hits in answers.items():
        for hit in hits:
            cells = [name, hit.id]
            if not quiet:
                cells += [str(hit.distance), _similarity_of(hit)]
            typer.echo("\t".join(map(shared.printable, cells)))


def _first_given(*values: str | Path | None) -> str | Path:
    """Return what a sheet shows as the question; empty where a vector asks."""
    return next((value for value in values if value), "")


def _words_of(question: str | None, text: str | None) -> str | None:
    """Return the words of a query, which stand alone or behind ``--text``."""
    if question is not None and text is not None:
        raise InputError("--text: the query is given twice; leave one of them out")
    return text if question is None else question


def _image_or_words(word: str) -> str | Path:
    file = Path(word)
    return file if file.is_file() else word


def _as_object(hits: "Hits", problems: Sequence[str]) -> dict[str, Any]:
    """Return answers as ``--json`` prints them, those that are less likely to fit included."""
    return {
        "results": [hit.as_dict() for hit in hits],
        "close": hits.close,
        "did_you_mean": hits.suggestion,
        "problems": problems,
        "narrowed": hits.narrowed(),
    }


def _print_paths(shown: "Hits") -> None:
    for hit in shown:
        typer.echo(shared.printable(hit.image or hit.id))


def _images_of(shown: "Hits") -> list[str]:
    """Return the files of the images to open."""
    return [hit.image for hit in shown if hit.image][:_OPENED]


def _say_remarks(hits: "Hits") -> None:
    """Say what the question could not be compared with, was narrowed to, and may have meant."""
    if hits.note:
        shared.say(hits.note)
    if hits.phrases:
        narrowed = ", ".join(f'{phrase.means} ("{phrase.words}")' for phrase in hits.phrases)
        shared.say(
            f"Narrowed to {narrowed}; what stands in double quotes within the question is searched "
            "for as words"
        )
    if hits.suggestion:
        shared.say(f"Did you mean: {hits.suggestion}")


def draw_sheet(draw: Callable[[Path], None], sheet: Path, named: bool) -> None:
    """Draw a sheet of what has been printed, and name its file."""
    sys.stdout.flush()  # so that no failure to draw hides what was found
    if sheet.exists() and not sheet.is_file():
        raise InputError(f"--sheet {sheet}: is no file; name a file to draw into")
    draw(sheet)
    if named:
        typer.echo(f"Pictures in {sheet}")


def _open_files(files: Sequence[str]) -> None:
    """Open files with the viewer of this system, up to the first that it cannot open."""
    sys.stdout.flush()
    command = {"darwin": "open", "win32": "explorer"}.get(sys.platform, "xdg-open")
    for file in files:
        try:
            subprocess.run(
                [command, file],
                check=sys.platform != "win32",  # Windows' explorer always returns 1
                capture_output=True,
                stdin=subprocess.DEVNULL,  # or a browser of a terminal would wait for a key
            )
        except (OSError, subprocess.CalledProcessError):
            shared.say(
                f"{file}: this machine has no viewer for it; `channelhash serve` shows answers in "
                "a browser"
            )
            return


def _print_answers(hits: "Hits", shown: "Hits", options: "SearchOptions", store: str) -> None:
    """Print a table of the hits that are shown; without any hits, say what none of the items is."""
    if not hits:
        typer.echo(f"0 answers: {store} has no item{_conditions(hits, options)}")
        return
    if shown:
        _print_table(shown, nothing_close=hits.close is False)
    unlikely = len(hits) - len(shown)
    if unlikely:
        count = f"{unlikely} more," if shown else f"Nothing fits; {unlikely}"
        typer.echo(f"{count} less likely (--all)")


def _conditions(hits: "Hits", options: "SearchOptions") -> str:
    """Return what an answer to a search would have to be."""
    conditions = ""
    if hits.close is False:
        conditions += " with any of these words"
    if options.radius is not None:
        conditions += f" within {options.radius} bits"
    if options.where is not None:
        conditions += f" that passes {options.where}"
    return conditions


def _print_table(shown: "Hits", nothing_close: bool) -> None:
    """Print a row a hit, without columns that would be empty."""
    title = "1 answer" if len(shown) == 1 else f"{len(shown)} answers"
    if nothing_close:
        title = f"nothing close; {title} from farther off"
    rows = []
    for rank, (hit, closeness) in enumerate(zip(shown, _closeness(shown), strict=True), start=1):
        rows.append([str(rank), *_cells(hit, closeness)])
    columns = zip(_header(shown), zip(*rows, strict=True), strict=True)
    filled = {name: cells for name, cells in columns if any(cells)}
    shared.print_table(title, list(filled), list(zip(*filled.values(), strict=True)))


def _header(shown: "Hits") -> list[str]:
    are_files = all(hit.image.endswith(hit.id) for hit in shown)
    name = "file" if are_files else "id"
    closeness = "closer than" if shown[0].fit is None else "fits"
    return ["rank", name, closeness, "similarity", "text", "text in it", "labels", "duplicates"]


def _cells(hit: "Hit", closeness: str) -> list[str]:
    """Return the cells of a hit below all of the header but its rank."""
    name = shared.printable(hit.id)
    quote = shared.printable(hit.quote)
    n_duplicates = str(len(hit.duplicates or ()) or "")
    labels = ", ".join(hit.labels)
    return [name, closeness, _similarity_of(hit), hit.text, quote, labels, n_duplicates]


def _similarity_of(hit: "Hit") -> str:
    """Return the similarity of a vector; others have none that people can read."""
    from channelhash.data.records import VECTOR

    if hit.similarity is None or VECTOR not in hit.modalities:
        return ""
    return f"{hit.similarity:.4f}"


def _closeness(hits: "Hits") -> list[str]:
    """Return how likely each hit fits, or else the share of items that it is closer than; nothing
    where no hit was compared.

    The order of hits is finer than that of bits, so one may be a few bits closer than the one
    above. Its share is never larger than that of the one above.
    """
    if all(hit.match is None or hit.by_words for hit in hits):
        return [""] * len(hits)
    cells = []
    share = 99.9
    for hit in hits:
        if hit.match is not None and not hit.by_words:
            share = min(share, 100 - 100 * hit.match)
        cells.append(_closeness_of(hit, share))
    return cells


def _closeness_of(hit: "Hit", share: float) -> str:
    if hit.by_words:
        return "(found by words)"
    return f"{share:.1f} % of all" if hit.fit is None else f"{100 * hit.fit:.0f} %"
