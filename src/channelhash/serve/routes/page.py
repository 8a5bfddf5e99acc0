"""The search page and the description of the API: files of the package, read once."""

from importlib.resources import files

from fastapi import APIRouter, Response

from channelhash.serve.responses import content_tag

_FILES = {
    "/": ("index.html", "text/html"),
    "/docs": ("docs.html", "text/html"),
    "/duplicates.html": ("duplicates.html", "text/html"),
    "/style.css": ("style.css", "text/css"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
    **{
        f"/{name}.js": (f"{name}.js", "text/javascript")
        for name in (
            "events",
            "script",
            "asked",
            "grid",
            "photo",
            "save",
            "store",
            "why",
            "draw",
            "requests",
            "duplicates",
            "docs",
        )
    },
}


def make_page_router() -> APIRouter:
    """Return routes to the page's files; no other file can be requested."""
    router = APIRouter(include_in_schema=False)
    for address, (name, media_type) in _FILES.items():
        content = (files("channelhash.serve") / "page" / name).read_bytes()
        router.add_api_route(address, _sender(content, media_type), methods=["GET"])
    return router


def _sender(content: bytes, media_type: str):  # type: ignore[no-untyped-def]
    tag = content_tag(content)

    async def send() -> Response:
        return Response(content, media_type=media_type, headers={"Cache-Control": "no-cache", "ETag": tag})

    return send
