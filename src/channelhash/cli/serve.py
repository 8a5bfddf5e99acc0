"""``channelhash serve``"""

from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import typer

from channelhash.cli.interrupts import when_stopped
from channelhash.cli.options import Captions, Encoder, Exclude, SearchableStore, StoreModel, TrustCode
from channelhash.cli.output import say
from channelhash.cli.search import bring_up_to_date


def serve(
    store: SearchableStore,
    model: StoreModel = None,
    host: str = typer.Option("127.0.0.1", help="Address to listen on; by default only this machine has access."),
    port: int = typer.Option(8080, min=0, max=65535, help="Port to listen on; 0 takes any free port."),
    token_file: Path | None = typer.Option(None, help="File with the token for requests that add or delete items."),
    read_token_file: Path | None = typer.Option(None, help="File with a token that all other requests need."),
    allow_host: list[str] = typer.Option([], help="Another host name of this server. May be repeated."),
    max_upload: float = typer.Option(16, min=0.001, help="Largest request, in MB."),
    workers: int = typer.Option(1, min=1, help="Number of processes that answer, up to one for each core."),
    encoder: Encoder = [],
    captions: Captions = None,
    exclude: Exclude = [],
    trust_code: TrustCode = False,
) -> None:
    """Serve a store, or a plain folder of pictures, over HTTP, with a search page for the browser, until Ctrl-C.

    Example: channelhash serve photos --port 8080
    """
    from channelhash.serve.app import open_app
    from channelhash.serve.server import allowed_hosts, format_address, listen, run_server, run_workers
    from channelhash.serve.service import Limits

    limits = Limits(upload_bytes=round(max_upload * 1e6))
    when_stopped(f"{store} keeps every write that was answered")
    with listen(host, port) as listening:
        _, photos = bring_up_to_date(store, model, encoder, captions, exclude)
        if photos:
            photos.store.close()
        hosts = allowed_hosts(host, allow_host)
        make = partial(open_app, store, model, limits, token_file, hosts, read_token_file, workers > 1)

        def ready() -> None:
            typer.echo(f"Searching {store} at {format_address(listening)}")

        if workers > 1:
            answer = partial(run_workers, workers, make, trust_code, listening, ready)
        else:
            app = make()
            app.state.service.encoding.add_done_callback(_say_problems)
            answer = partial(run_server, app, listening, ready)
        try:
            answer()
        finally:
            typer.echo("Stopped.")


def _say_problems(encoding: Future[Any]) -> None:
    """Say which searches a server cannot answer, once its model is loaded."""
    if encoding.cancelled() or encoding.exception():
        return
    for modality, problem in encoding.result().problems.items():
        alone = modality == "text" and encoding.result().words_alone
        what = "texts are searched by their words" if alone else f"no search with a new {modality}"
        say(f"{what}: {problem}")
