"""``channelhash serve`` and ``mcp``: a folder of photographs, or another store, for browsers and
language models.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cache, partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

import channelhash as ch
from channelhash.cli import same_command, shared, when_stopped
from channelhash.cli.stores import (
    IndexOptions,
    StoreModel,
    bring_up_to_date,
    say_known,
    skipped_lines,
)
from channelhash.errors import InputError, JobError
from channelhash.utils.optional_imports import naming_extra
from channelhash.utils.progress import StageProgress
from channelhash.utils.typed_settings import trusting
from channelhash.utils.watch import Report, Watch

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

_LogLevel = Literal["error", "warning", "info"]
_PURPOSE = (
    "Search photographs by what they show. Words find photographs and captions; `where` narrows "
    "by labels, dates and other metadata, such as: label = 'dog' AND taken >= '2019-06' AND taken "
    "< '2019-09'. `fit` is the probability that a photograph shows what was asked for. Look at "
    "photographs with `show`."
)
#: Gives a store the name before it.
_NAMED = re.compile(r"([\w-][\w .-]*)=(.+)")
Stores = Annotated[
    list[str],
    typer.Argument(
        metavar="[NAME=]FOLDER|STORE…",
        help="A folder of photographs, a store, a run's folder, a file of codes, or "
        "postgresql://…; several under their names.",
    ),
]
#: Pixels of the long side of a photograph that is shown: what language models look at.
_SIDE = 1024
#: Argument of the library -> what a language model, or who starts the server, calls it.
_ARGUMENTS = {"like": "id", "model": "`--model` to `channelhash mcp`"}


def serve(
    stores: Stores,
    model: StoreModel = None,
    host: str = typer.Option(
        "127.0.0.1", help="Address to listen on; by default only this machine has access."
    ),
    port: int = typer.Option(
        8080, min=0, max=65535, help="Port to listen on; 0 takes any free port."
    ),
    token_file: Path | None = typer.Option(
        None, help="File with the token for requests that add or delete items."
    ),
    read_token_file: Path | None = typer.Option(
        None, help="File with a token that all other requests need."
    ),
    allow_host: list[str] = typer.Option(
        [], help="Another host name of this server. May be repeated."
    ),
    max_upload: float = typer.Option(16, min=0.001, max=1_000_000, help="Largest request, in MB."),
    workers: int = typer.Option(
        1, min=1, help="Number of processes that answer, up to one for each core."
    ),
    encoder: shared.EncoderWords = [],
    captions: shared.Captions = None,
    exclude: shared.Exclude = [],
    watch: bool = typer.Option(
        True, "--watch/--no-watch", help="Index what changes in the folder of the photographs."
    ),
    log_level: _LogLevel = typer.Option(
        "warning", help="What goes to stderr; info has a line for each request."
    ),
    trust_code: shared.TrustCode = False,
) -> None:
    """Serve a folder of photographs, or other stores, over HTTP, with a search page for the
    browser, until Ctrl-C.

    Example: channelhash serve photos --port 8080
    """
    from channelhash.serve import server, service
    from channelhash.serve.app import open_app

    # Between two questions, PyTorch's threads would keep a core busy with waiting.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    limits = service.Limits(upload_bytes=round(max_upload * 1e6))
    addresses = _name_stores(stores)
    reports = {name: Report.new() for name in addresses}
    named = ", ".join(addresses.values())
    with server.listen(host, port) as listening:
        hosts = server.allowed_hosts(host, allow_host)
        options = IndexOptions(model, encoder, captions, exclude)
        watches = [
            _watch_store(store, reports[name], trust_code, options, watch)
            for name, store in addresses.items()
        ]
        when_stopped(f"{named} keeps what was indexed and written", partial(_go_on, reports))
        make = partial(
            open_app,
            addresses,
            model,
            limits,
            token_file,
            hosts,
            read_token_file,
            workers > 1,
            reports,
        )

        def ready() -> None:
            typer.echo(f"Searching {named} at {server.format_address(listening)}")

        if workers > 1:
            answer = partial(
                server.run_workers, workers, make, trust_code, listening, ready, log_level
            )
        else:
            app = make()
            for each in service.services(app):
                each.encoding.add_done_callback(_say_problems)
            answer = partial(server.run_server, app, listening, ready, log_level)
        try:
            with ExitStack() as background:
                for watching in watches:
                    background.enter_context(watching)
                answer()
        finally:
            typer.echo("Stopped.")


def _name_stores(stores: Sequence[str]) -> dict[str, str]:
    """Return name -> address of stores; one alone needs no name, which is empty then."""
    addresses: dict[str, str] = {}
    for address in stores:
        name = os.path.basename(os.path.abspath(address.partition("?")[0]))
        given = _NAMED.fullmatch(address)
        if given and not Path(address).exists():
            name, address = given.groups()
        if not name or name in addresses:
            raise InputError(f"{address}: {name!r} is no name of its own; name it: OTHER={address}")
        addresses[name] = address
    return addresses if len(addresses) > 1 else {"": address}


def _watch_store(
    store: str, report: Report, trust_code: bool, options: IndexOptions, watch: bool = True
) -> AbstractContextManager[None]:
    """Return a block within which a store of photographs is brought up to date, at first and
    whenever they change; make it before that.

    Codes that have to be fitted to photographs, and a store that is not watched, are brought up to
    date before the block. Stores that can only be read stay as they are. Errors as in
    `bring_up_to_date`.

    Example::

        with _watch_store("photos", report, False, IndexOptions()):
            run_server(app, listening, ready)
    """
    address = ch.search.Address.parse(store)
    watched = _watched(address) if watch else None
    photos = None
    if watched is None or any(options):
        photos = bring_up_to_date(address, options, waits=not watch)
    if photos:
        photos.store.close()
        watched = _watched(address) if watch else None
    if watched is None:
        return nullcontext()
    problems = photos.indexed.problems if photos else _listed_before(address, watched[1])
    return Watch(*watched, partial(_index_again, address, trust_code), report, shared.say, problems)


def _listed_before(address: "ch.search.Address", store: Path) -> list[str]:
    """Say how many pictures could not be read the last time; return their lines, listed then."""
    from channelhash.indexing.source import PhotoSource

    photos = PhotoSource.read(store)
    lines = [image.problem for image in photos.unread.values()] if photos else []
    say_known(address, len(lines))
    return lines


def _watched(address: "ch.search.Address") -> tuple[Path, Path] | None:
    """Return the folder of a store's photographs and that of the store; None if it has no such
    folder, or can only be read.
    """
    from channelhash.indexing.source import PhotoSource

    place = address.store
    if place.path is None or not place.writable:
        return None
    photos = PhotoSource.read(place.path)
    return None if photos is None else (photos.folder, place.path)


def _index_again(
    address: "ch.search.Address", trust_code: bool, progress: StageProgress
) -> tuple[Sequence[str], str]:
    """Bring a store of photographs up to date; return what was left out and what has changed."""
    with trusting(trust_code), naming_extra("photos"):
        from channelhash.indexing.stores import add_to_store, read_again

        # fails if the store is gone, and makes no new one
        done = add_to_store(address, read_again(address, None), None, progress, prune=True)
    changes = done.changes(address.text)
    return [*done.problems, *(skipped_lines(done) if changes else ())], changes


def _go_on(reports: Mapping[str, Report]) -> list[str]:
    """Return the command that continues what a server was indexing; none if it had finished."""
    is_left = any(report.stage or report.problem for report in reports.values())
    return same_command() if is_left else []


def _say_problems(encoding: Future[Any]) -> None:
    """Say which searches a server cannot answer, once its model is loaded."""
    if encoding.cancelled() or encoding.exception():
        return
    for modality, problem in encoding.result().problems.items():
        alone = modality == "text" and encoding.result().words_alone
        line = "texts are searched by their words" if alone else f"no search with a new {modality}"
        shared.say(f"{line}: {problem}")


def mcp(
    store: shared.SearchableStore,
    model: StoreModel = None,
    encoder: shared.EncoderWords = [],
    exclude: shared.Exclude = [],
    trust_code: shared.TrustCode = False,
) -> None:
    """Let a language model search a folder of photographs, or a store, over the Model Context
    Protocol (stdio).

    Programs that use language models start it. Example: channelhash mcp photos
    """
    from mcp.server.mcpserver import MCPServer

    server: MCPServer[None] = MCPServer(
        "channelhash", version=ch.__version__, instructions=_PURPOSE, log_level="WARNING"
    )
    options = IndexOptions(model, encoder, exclude=exclude)
    report = Report.new()
    background = _watch_store(store, report, trust_code, options)
    find = ch.search.open_store if isinstance(background, Watch) else ch.search.open_filled_store
    with background, find(store) as opened:
        add_tools(server, opened, model, report)
        server.run()


def add_tools(
    server: "MCPServer[None]", store: "ch.Store", model: Path | None, report: Report
) -> None:
    """Add the tools with which a language model searches a store; answers while its folder is
    indexed say how far that is.
    """
    from mcp.server.mcpserver import Image

    from channelhash.duplicates import find_duplicates, regroup
    from channelhash.search.hits import SearchOptions
    from channelhash.search.query import load_query_encoder, search_store

    load = cache(lambda: load_query_encoder(store, model))

    def search(text: str, k: int = 10, where: str | None = None) -> dict[str, Any]:
        """Find the k photographs that a text describes, best first; -word is not wanted.

        Dates and places in the text narrow the search, as `narrowed` says; in double quotes they
        are words.
        """
        if report.stage and not len(store):
            raise InputError(f"nothing is indexed yet ({report.so_far or 'it begins'}), ask later")
        options = SearchOptions(k, where=where, regroup=regroup)
        hits = search_store(store, options, text=text, model=load())
        remarks = {"close": hits.close, "did_you_mean": hits.suggestion, "note": hits.note}
        results = [hit.as_dict() for hit in hits]
        found = {"results": results, **remarks, "narrowed": hits.narrowed()}
        return found | ({"indexing": report.so_far} if report.so_far else {})

    def similar(id: str, k: int = 10) -> dict[str, Any]:
        """Find the k photographs most like one of them; `duplicates` are its near-copies."""
        hits = search_store(store, SearchOptions(k, leave_out=id, regroup=regroup), like=id)
        return {"results": [hit.as_dict() for hit in hits], "duplicates": hits.alike}

    def duplicates(k: int = 10) -> dict[str, Any]:
        """Return the ids of the first k groups of near-duplicates, and how many groups there
        are.
        """
        groups = find_duplicates(store)
        return {
            "groups": [list(group.ids) for group in groups[: SearchOptions(k).k]],
            "found": len(groups),
        }

    def show(id: str) -> list[Any]:
        """Return what is known of a photograph, and the photograph, its long side at most 1024
        pixels.
        """
        facts = {"id": id, **store.get([id])[0].metadata}
        if not facts.get("image"):
            return [facts]
        return [facts, Image(data=_draw(str(facts["image"])), format="jpeg")]

    tools: list[Callable[..., Any]] = [search, similar, duplicates, show]
    for tool in tools:
        server.add_tool(_one_at_a_time()(tool), structured_output=tool is not show)


_calls = Lock()


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Run one call of a tool at a time, as networks take no more; answer with what went wrong."""
    from mcp.server.mcpserver.exceptions import ToolError

    try:
        with _calls:
            yield
    except (InputError, JobError) as error:
        raise ToolError(error.spelled(lambda name: _ARGUMENTS.get(name, name))) from None


def _draw(path: str) -> bytes:
    """Return a photograph as a JPEG file to look at."""
    from channelhash.utils.image_files import decode, jpeg, open_image

    try:
        with open_image(path) as opened:
            return jpeg(decode(opened, 2 * _SIDE), _SIDE)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
