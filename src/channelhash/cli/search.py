"""``channelhash search``, ``explain`` and ``serve``.

A plain folder of photographs may stand in the place of a store: it is indexed first, and then only what changed.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from channelhash.cli import options
from channelhash.cli.interrupts import when_stopped
from channelhash.cli.output import print_either, print_json, print_table, printable, progress_bars, say, say_left_out
from channelhash.errors import InputError
from channelhash.utils.optional_imports import naming_extra
from channelhash.utils.typed_settings import trusting

if TYPE_CHECKING:
    from channelhash.explanation.api import Explanation
    from channelhash.explanation.bit_labels import Bit
    from channelhash.photos.encode import Indexed
    from channelhash.photos.stores import Index
    from channelhash.search.hits import Hits, SearchOptions
    from channelhash.search.store import Store
    from channelhash.utils.progress import StageProgress
    from channelhash.utils.watch import Report

_By = Literal["all", "image", "text", "words"]
# Typer takes no list of literals.
_LogLevel = Literal["error", "warning", "info"]
_Side = StrEnum("_Side", ["image", "text"])
Sheet = Annotated[Path | None, typer.Option(help="Also draw the result as a PNG file with this name.")]
StoreModel = Annotated[Path | None, typer.Option(help="Run or saved model that made the codes, if the store has none.")]


class Making(NamedTuple):
    """The model of a store of photographs, or else its encoder, and their captions and exclusions."""

    model: Path | None = None
    encoder: Sequence[str] = ()
    captions: Path | None = None
    exclude: Sequence[str] = ()


# Lines about what cannot be read that a search begins with; JSON has all.
_MOST = 20
# Photographs that --open shows.
_OPENED = 3


def search(
    store: options.SearchableStore,
    question: str | None = typer.Argument(None, help='Words: "a beach" or, in parts, \'beach "two dogs"^2 -people\'.'),
    text: str | None = typer.Option(None, help="The query in words, as an option."),
    image: Path | None = typer.Option(None, help="Search with a picture."),
    like: str | None = typer.Option(None, help="Search with the codes of the item that has this id."),
    minus: list[str] = typer.Option([], help="Words or a picture that are not wanted. May be repeated."),
    minus_like: list[str] = typer.Option([], help="Id of an item that is not wanted. May be repeated."),
    by: _By | None = typer.Option(None, help="Search codes, words or all. With --like alone: by which code."),
    modality: options.Modality | None = typer.Option(None, help="Modality to search; images if there are any."),
    k: int = typer.Option(10, "-k", help="Number of results."),
    radius: int | None = typer.Option(None, help="Return all items within this many bits, instead of -k."),
    where: options.Where = None,
    rerank: int | None = typer.Option(None, help="Reorder this many nearest items by the query's real-valued outputs."),
    collapse: bool | None = typer.Option(None, help="Fold near-duplicates into the first: pictures, unless --radius."),
    model: StoreModel = None,
    encoder: options.Encoder = [],
    captions: options.Captions = None,
    exclude: options.Exclude = [],
    sheet: Sheet = None,
    view: bool = typer.Option(False, "--open", help="Open the sheet, or else the first photographs."),
    everything: bool = typer.Option(False, "--all", help="Also show answers that are less likely to fit."),
    quiet: bool = typer.Option(False, "-q", "--quiet", help="Print nothing but paths, one a line."),
    trust_code: options.TrustCode = False,
    as_json: options.AsJson = False,
) -> None:
    """Find the items that answer words, a picture, another item, or several of them together.

    Example: channelhash search photos.store "a dog on a beach -people" -k 5
    """
    from channelhash.search.duplicates import default_radius
    from channelhash.search.hits import Hits, SearchOptions
    from channelhash.search.query import search_store

    if question is not None and text is not None:
        raise InputError("--text: the query is given twice; leave one of them out")
    text = text if question is None else question
    settings = SearchOptions(k, radius, None, modality, where, rerank)
    opened, problems = open_searched(store, Making(model, encoder, captions, exclude), by == "words")
    first = next(opened.listed(), None)  # of a store of features, codes alone would decide
    pictures = "image" in opened.modalities and modality != "text" and first is not None and "image" in first.metadata
    if collapse or (collapse is None and pictures and radius is None and rerank is None):
        settings = replace(settings, collapse=default_radius(opened.n_bits or 0, pictures))
    unlike = [Path(what) if Path(what).is_file() else what for what in minus]
    hits = search_store(
        opened, settings, text=text, image=image, like=like, by=by, minus=unlike, minus_like=minus_like, model=model
    )
    shown = Hits(hit for hit in hits if everything or hit.fits)
    if sheet:
        shown.draw(text if text is not None else image or like or "", sheet)
    opened.close()
    if hits.note:
        say(hits.note)
    if hits.phrases:
        narrowed = ", ".join(f'{phrase.means} ("{phrase.words}")' for phrase in hits.phrases)
        say(f"Narrowed to {narrowed}; what stands in double quotes within the question is searched for as words")
    if hits.suggestion:
        say(f"Did you mean: {hits.suggestion}")
    if as_json:
        results = [hit.as_dict() for hit in hits]
        said = {"close": hits.close, "did_you_mean": hits.suggestion, "problems": problems}
        phrases = [{"kind": phrase.kind, "words": phrase.words, "means": phrase.means} for phrase in hits.phrases]
        print_json({"results": results, **said, "narrowed": phrases})
    elif quiet:
        for hit in shown:
            typer.echo(printable(hit.image or hit.id))
    else:
        _print_answers(hits, shown, settings, store)
        if sheet:
            typer.echo(f"Pictures in {sheet}")
    if view:
        _open_files([str(sheet)] if sheet else [hit.image for hit in shown if hit.image][:_OPENED])


def _open_files(files: Sequence[str]) -> None:
    """Open files with the viewer of this system, up to the first that it cannot open."""
    command = {"darwin": "open", "win32": "explorer"}.get(sys.platform, "xdg-open")
    for file in files:
        try:  # Windows' explorer always returns 1
            subprocess.run([command, file], check=sys.platform != "win32", capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            say(f"{file}: this machine has no viewer for it; `channelhash serve` shows answers in a browser")
            return


def _print_answers(hits: "Hits", shown: "Hits", settings: "SearchOptions", store: str) -> None:
    """Print a line for each hit that is shown; where there are no hits, what an item would have to be."""
    if not hits:
        words = " with any of these words" if hits.close is False else ""
        near = "" if settings.radius is None else f" within {settings.radius} bits"
        passing = "" if settings.where is None else f" that passes {settings.where}"
        typer.echo(f"0 answers: {store} has no item{words}{near}{passing}")
        return
    unlikely = len(hits) - len(shown)
    if shown:
        columns = {
            "rank": [str(place) for place in range(1, len(shown) + 1)],
            "file" if all(hit.image.endswith(hit.id) for hit in shown) else "id": [printable(hit.id) for hit in shown],
            "fits" if shown[0].fit is not None else "closer than": _closeness(shown),
            "text": [hit.text for hit in shown],
            "text in it": [printable(hit.quote) for hit in shown],
            "labels": [", ".join(hit.labels) for hit in shown],
            "duplicates": [str(len(hit.duplicates or ()) or "") for hit in shown],
        }
        columns = {name: cells for name, cells in columns.items() if any(cells)}
        answers = f"{len(shown)} answer{'' if len(shown) == 1 else 's'}"
        title = f"nothing close; {answers} from farther off" if hits.close is False else answers
        print_table(title, list(columns), list(zip(*columns.values(), strict=True)))
    if unlikely:
        typer.echo(f"{f'{unlikely} more,' if shown else f'Nothing fits; {unlikely}'} less likely (--all)")


def _closeness(hits: "Hits") -> list[str]:
    """Return, for each hit, how likely it fits; or a share of the items that it is closer than, never more than for the
    one above: hits are in an order finer than that of bits, so one may be a few bits closer than the one above.
    """
    if all(hit.match is None or hit.by_words for hit in hits):
        return []
    cells, share = [], 99.9
    for hit in hits:
        share = share if hit.match is None or hit.by_words else min(share, 100 - 100 * hit.match)
        near = f"{share:.1f} % of all" if hit.fit is None else f"{100 * hit.fit:.0f} %"
        cells.append("(found by words)" if hit.by_words else near)
    return cells


def explain(
    store: str = typer.Argument(..., metavar="RUN", help="A run's folder, or a store or file of codes (see `search`)."),
    image: list[Path] = typer.Option([], help="A picture of the pair."),
    text: list[str] = typer.Option([], help="Words of the pair."),
    like: list[str] = typer.Option([], help="An item of the store, by its id."),
    by: list[_Side] = typer.Option([], help="For each --like: modality of its code; image if there are any."),
    model: StoreModel = None,
    cells: int = typer.Option(8, help="Cells along a picture's short side; the hidden patch moves by one cell."),
    patch: int = typer.Option(2, help="Side of the hidden patch in cells."),
    fill: Literal["grey", "blur"] = typer.Option("grey", help="Content of the patch: grey, or the picture blurred."),
    maps: bool = typer.Option(True, "--maps/--no-maps", help="Hide parts of pictures and leave out words in turn."),
    trust_code: options.TrustCode = False,
    as_json: options.AsJson = False,
) -> None:
    """Explain why two items match: which bits agree, what they mean, which parts of a picture and which words matter.

    Give two of --image, --text and --like.

    Example: channelhash explain runs/table --image dog.jpg --text "a dog on a beach"
    """
    from channelhash import explanation

    settings = explanation.MapSettings(cells, patch, fill) if maps else None
    pair = explanation.explain(store, image, text, like, by, model, settings)
    print_either(pair.as_dict(), as_json, _print_explanation, pair)


def _print_explanation(explanation: "Explanation") -> None:
    first, second = explanation.sides
    typer.echo(f"{first.modality} {first.name!r} and {second.modality} {second.name!r}")
    typer.echo(f"{explanation.summary()} Relaxed distance {explanation.relaxed_distance:.1f} bits.")
    rows = [
        [
            str(bit.number),
            " ".join(str(int(value)) for value in bit.values),
            "agrees" if bit.agrees else "differs",
            " ".join("–" if value is None else f"{value:.2f}" for value in bit.strengths),
            f"{bit.share:+.3f}",
            _describe_bit(explanation, bit),
        ]
        for bit in sorted(explanation.bits, key=lambda bit: -abs(bit.share))
    ]
    print_table("The bits, those that count most first", ["bit", "values", "", "strength", "share", "meaning"], rows)
    for side, words in zip(explanation.sides, explanation.words, strict=True):
        if words:
            table = [[word.word, f"{word.influence:+.2f}", ", ".join(map(str, word.flips))] for word in words]
            print_table(f"Without a word of {side.name!r}", ["word", "bits farther", "bits that flip"], table)
    for remark in explanation.remarks:
        typer.echo(f"({remark})")


def _describe_bit(explanation: "Explanation", bit: "Bit") -> str:
    """Return the labels that the first item's value of a bit speaks for and against, with |φ|."""
    sign = 1 if bit.values[0] else -1
    labels = explanation.bit_labels(bit)[:3]
    names = [f"{'' if sign * phi > 0 else 'not '}{name} {abs(phi):.2f}" for name, phi in labels]
    return ", ".join(names) or "no clear meaning"


def open_searched(store: str, making: Making, words_alone: bool = False) -> tuple["Store", Sequence[str]]:
    """Return a store that has items, and what cannot be read.

    The store of a plain folder is brought up to date first.

    For words alone, which need no model, the store of a folder is searched as it is.

    Other arguments and errors as in `_bring_up_to_date`; or there is nothing to search.
    """
    from channelhash.search import find_store
    from channelhash.search.query import open_filled_store

    if words_alone and not any(making[1:]) and find_store(Path(store)):
        return open_filled_store(store), ()
    photos = _bring_up_to_date(store, making)
    return (photos.store, photos.indexed.problems) if photos and len(photos.store) else (open_filled_store(store), ())


def _bring_up_to_date(store: str, making: Making) -> "Index | None":
    """Make a store of a plain folder of photographs, or bring its store up to date; None for other addresses and where
    the store can only be read.

    Raises:
        InputError: an encoder, captions or exclusions are given for anything but a plain folder; or as
            `photos.stores.index`.
    """
    from channelhash.search import find_store, holds_files
    from channelhash.search.sqlite.folder import StoreFolder

    if not holds_files(store):
        for name, value in making._replace(model=None)._asdict().items():
            if value:
                raise InputError(f"--{name}: goes with a plain folder of pictures, {store} is none; leave it out")
        return None
    place = find_store(Path(store))
    if place is not None and not StoreFolder(place).writable:
        say(f"{place}: can only be read, so that new pictures are not found")
        return None
    from channelhash.models.description import extra_of, read_words

    word = read_words(list(making.encoder)) if making.encoder else None
    with naming_extra("train" if making.model else extra_of(word)):
        from channelhash.photos.stores import index

    with progress_bars(f"{store} keeps the items indexed so far") as progress:
        photos = index(store, **making._asdict() | {"encoder": word}, prune=True, progress=progress)
    say_left_out(photos.indexed.problems, _MOST)
    if summary := _summary(photos.indexed, photos.store.address):
        say_left_out([f"{count:,} × {reason}" for reason, count in photos.indexed.skipped.items()])
        say(summary)
    return photos


def _summary(done: "Indexed", address: str) -> str:
    """Return what has changed in a store, if anything."""
    counts = {"added": done.added, "changed": done.replaced, "moved": done.moved, "removed": done.pruned}
    changed = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
    return changed and f"{changed}: {done.items:,} pictures in {address} ({done.seconds:.0f} s)"


def serve(
    store: options.SearchableStore,
    model: StoreModel = None,
    host: str = typer.Option("127.0.0.1", help="Address to listen on; by default only this machine has access."),
    port: int = typer.Option(8080, min=0, max=65535, help="Port to listen on; 0 takes any free port."),
    token_file: Path | None = typer.Option(None, help="File with the token for requests that add or delete items."),
    read_token_file: Path | None = typer.Option(None, help="File with a token that all other requests need."),
    allow_host: list[str] = typer.Option([], help="Another host name of this server. May be repeated."),
    max_upload: float = typer.Option(16, min=0.001, help="Largest request, in MB."),
    workers: int = typer.Option(1, min=1, help="Number of processes that answer, up to one for each core."),
    encoder: options.Encoder = [],
    captions: options.Captions = None,
    exclude: options.Exclude = [],
    watch: bool = typer.Option(True, "--watch/--no-watch", help="Index what changes in the folder of the pictures."),
    log_level: _LogLevel = typer.Option("warning", help="What goes to stderr; info has a line for each request."),
    trust_code: options.TrustCode = False,
) -> None:
    """Serve a store, or a plain folder of pictures, over HTTP, with a search page for the browser, until Ctrl-C.

    Example: channelhash serve photos --port 8080
    """
    from channelhash.serve.app import open_app
    from channelhash.serve.server import allowed_hosts, format_address, listen, run_server, run_workers
    from channelhash.serve.service import Limits
    from channelhash.utils.watch import Report

    # Between two questions, PyTorch's threads would keep a core busy with waiting.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    limits = Limits(upload_bytes=round(max_upload * 1e6))
    when_stopped(f"{store} keeps every write that was answered")
    with listen(host, port) as listening:
        report, hosts = Report.new(), allowed_hosts(host, allow_host)
        background = watch_store(store, report, trust_code, Making(model, encoder, captions, exclude), watch)
        make = partial(open_app, store, model, limits, token_file, hosts, read_token_file, workers > 1, report)

        def ready() -> None:
            typer.echo(f"Searching {store} at {format_address(listening)}")

        if workers > 1:
            answer = partial(run_workers, workers, make, trust_code, listening, ready, log_level)
        else:
            app = make()
            app.state.service.encoding.add_done_callback(_say_problems)
            answer = partial(run_server, app, listening, ready, log_level)
        try:
            with background:
                answer()
        finally:
            typer.echo("Stopped.")


def watch_store(
    store: str, report: "Report", trust_code: bool, making: Making, watch: bool = True
) -> AbstractContextManager[None]:
    """Bring a store of photographs up to date, and again within the block that is returned whenever they change.

    Where it was made before, and is to be as it was made, the first time is within the block, too. Nothing is done for
    other stores, and those that can only be read. Errors as in `_bring_up_to_date`.

    Example::

        with watch_store("photos", report, False, Making()):
            run_server(app, listening, ready)
    """
    from channelhash.utils.watch import Watch

    watched = _watched(store) if watch else None
    photos = None if watched and not any(making) else _bring_up_to_date(store, making)
    if photos:
        photos.store.close()
        watched = _watched(store) if watch else None
    said = photos.indexed.problems if photos else ()
    return Watch(*watched, partial(_index_again, store, trust_code), report, say, said) if watched else nullcontext()


def _watched(store: str) -> tuple[Path, Path] | None:
    """Return the folder of the photographs that a store was made of, and the store's own; None where there is none that
    can be watched, or the store can only be read.
    """
    from channelhash.photos.source import PhotoSource
    from channelhash.search import find_or_keep
    from channelhash.search.sqlite.folder import StoreFolder

    place = find_or_keep(Path(store))
    photos = None if "://" in store or not StoreFolder(place).writable else PhotoSource.read(place)
    return None if photos is None else (photos.folder, place)


def _index_again(store: str, trust_code: bool, progress: "StageProgress") -> tuple[Sequence[str], str]:
    """Bring a store of photographs up to date by what it was made of; return what was left out and what has changed."""
    with trusting(trust_code), naming_extra("photos"):
        from channelhash.photos.stores import add_to_store, read_again

        done = add_to_store(store, read_again(store, None), None, progress, prune=True)
    return done.problems, _summary(done, store)


def _say_problems(encoding: Future[Any]) -> None:
    """Say which searches a server cannot answer, once its model is loaded."""
    if encoding.cancelled() or encoding.exception():
        return
    for modality, problem in encoding.result().problems.items():
        alone = modality == "text" and encoding.result().words_alone
        what = "texts are searched by their words" if alone else f"no search with a new {modality}"
        say(f"{what}: {problem}")
