"""``channelhash mcp``: a folder of photographs, or another store, for language models."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from channelhash._version import __version__
from channelhash.cli import options
from channelhash.cli.search import Making, StoreModel, watch_store
from channelhash.errors import InputError, JobError
from channelhash.utils.image_files import decode, jpeg, open_image

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

    from channelhash.search.store import Store

_PURPOSE = (
    "Search photographs by what they show. Words find photographs and captions; `where` narrows by labels, dates and "
    "other metadata, such as: label = 'dog' AND taken >= '2019-06' AND taken < '2019-09'. `fit` is the probability "
    "that a photograph shows what was asked for. Look at photographs with `show`."
)
# Pixels of the long side of a photograph that is shown.
_SIDE = 1024


def mcp(
    store: options.SearchableStore,
    model: StoreModel = None,
    encoder: options.Encoder = [],
    exclude: options.Exclude = [],
    trust_code: options.TrustCode = False,
) -> None:
    """Let a language model search a folder of pictures, or a store, over the Model Context Protocol (stdio).

    Programs that use language models start it. Example: channelhash mcp photos
    """
    from mcp.server.mcpserver import MCPServer

    from channelhash.search.query import open_filled_store
    from channelhash.utils.watch import Report

    server: MCPServer[None] = MCPServer("channelhash", version=__version__, instructions=_PURPOSE, log_level="WARNING")
    making = Making(model, encoder, exclude=exclude)
    with watch_store(store, Report.new(), trust_code, making), closing(open_filled_store(store)) as opened:
        _add_tools(server, opened, model)
        server.run()


def _add_tools(server: "MCPServer[None]", store: "Store", model: Path | None) -> None:
    """Let a server search a store, with its own model or another one."""
    from mcp.server.mcpserver import Image

    from channelhash.search.duplicates import find_duplicates
    from channelhash.search.hits import SearchOptions
    from channelhash.search.query import load_query_encoder, search_store

    load = cache(lambda: load_query_encoder(store, model))

    @server.tool()
    @_one_at_a_time()
    def search(text: str, k: int = 10, where: str | None = None) -> dict[str, Any]:
        """Find the k photographs that a text describes, best first; -word is not wanted."""
        hits = search_store(store, SearchOptions(k, where=where), text=text, model=load())
        said = {"close": hits.close, "did_you_mean": hits.suggestion, "note": hits.note}
        return {"results": [hit.as_dict() for hit in hits], **said}

    @server.tool()
    @_one_at_a_time()
    def similar(id: str, k: int = 10) -> dict[str, Any]:
        """Find the k photographs most like one of them."""
        hits = search_store(store, replace(SearchOptions(k), k=k + 1), like=id)
        return {"results": [hit.as_dict() for hit in hits if hit.id != id][:k]}

    @server.tool()
    @_one_at_a_time()
    def duplicates(k: int = 10) -> dict[str, Any]:
        """Return the ids of the first k groups of near-duplicates, and how many groups there are."""
        groups = find_duplicates(store)
        return {"groups": [list(group.ids) for group in groups[: SearchOptions(k).k]], "found": len(groups)}

    @server.tool(structured_output=False)
    @_one_at_a_time()
    def show(id: str) -> list[Any]:
        """Return what is known of a photograph, and the photograph, its long side at most 1024 pixels."""
        facts = {"id": id, **store.get([id])[0].metadata}
        return [facts, Image(data=_draw(str(facts["image"])), format="jpeg")] if facts.get("image") else [facts]


_calls = Lock()


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Let one call of a tool run, as the networks are not made for several; what is wrong is its answer."""
    from mcp.server.mcpserver.exceptions import ToolError

    try:
        with _calls:
            yield
    except (InputError, JobError) as error:
        raise ToolError(str(error)) from None


def _draw(path: str) -> bytes:
    """Return a photograph as a JPEG file to look at."""
    try:
        with open_image(path) as opened:
            return jpeg(decode(opened, 2 * _SIDE), _SIDE)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
