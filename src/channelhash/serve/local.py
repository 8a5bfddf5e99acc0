"""``/reveal``: where a photograph lies, and its folder in a window, for the person at this machine alone."""

import ipaddress
import subprocess
import sys
from pathlib import Path

from fastapi import APIRouter, HTTPException, Request

from channelhash.errors import InputError
from channelhash.serve import schemas
from channelhash.serve.middleware import PROBLEMS, WRITE_PROBLEMS
from channelhash.serve.routing import Route
from channelhash.serve.service import CurrentService, Service

#: A proxy on this machine adds one of them: its clients are elsewhere.
_FORWARDED = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip")
#: Seconds that a program has to fail; one that runs longer is the window.
_SECONDS = 3
_MANAGER = "org.freedesktop.FileManager1"
router = APIRouter(tags=["items"], responses=PROBLEMS | {403: WRITE_PROBLEMS[403]}, route_class=Route)


def is_loopback(host: str) -> bool:
    """Return whether a name or an address is this machine's own.

    >>> is_loopback("127.0.0.2"), is_loopback("localhost"), is_loopback("192.0.2.1"), is_loopback("photos.local")
    (True, True, False, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def is_local(request: Request, service: Service) -> bool:
    """Return whether a request comes from this machine, to a server that no other one reaches."""
    forwarded = any(name in request.headers for name in _FORWARDED)
    return service.local and not forwarded and is_loopback(request.client.host if request.client else "")


def describe_problem(request: Request, service: Service) -> str:
    """Return why the folder could not be indexed; lines about files are for this machine alone."""
    line = service.report.problem.decode(errors="replace")
    return line if is_local(request, service) else line and "the folder could not be read; the server's log says why"


@router.post("/reveal")
def _reveal(wanted: schemas.Reveal, request: Request, service: CurrentService) -> dict[str, str]:
    """Return where the picture of an item lies, and perhaps show it there; only to the page, on the server's machine.

    Whatever another site or a proxy lets a browser send has another ``Origin`` than the address of the server.
    """
    page = f"http://{request.headers.get('host')}"
    if not is_local(request, service) or request.headers.get("origin") != page:
        raise HTTPException(403, "where files lie is only told to the page of this server, on its own machine")
    path = Path(str(service.get_item(wanted.id).metadata.get("image") or "")).absolute()
    if not path.is_file():
        raise HTTPException(404, "the picture of this item is not there any more")
    if wanted.show:
        _show_in_folder(path)
    return {"path": str(path)}


def _show_in_folder(path: Path) -> None:
    """Open the folder of a file with the file manager of this system, the file selected where that is possible."""
    ask = ["dbus-send", "--print-reply", f"--dest={_MANAGER}", f"/{_MANAGER.replace('.', '/')}"]
    commands = [[*ask, f"{_MANAGER}.ShowItems", f"array:string:{path.as_uri()}", "string:"]]
    commands.append(["xdg-open", str(path.parent)])
    others = {"darwin": ["open", "-R", str(path)], "win32": ["explorer", "/select,", str(path)]}
    if not any(map(_runs, [others[sys.platform]] if sys.platform in others else commands)):
        raise InputError("this machine has no file manager that could be opened")


def _runs(command: list[str]) -> bool:
    """Start a program without a shell; return whether it works, as far as that shows soon."""
    no = subprocess.DEVNULL
    try:  # in a session of its own, which Ctrl-C in the server's terminal does not end
        status = subprocess.Popen(command, stdin=no, stdout=no, stderr=no, start_new_session=True).wait(_SECONDS)
    except subprocess.TimeoutExpired:
        return True
    except OSError:
        return False
    return status == 0 or sys.platform == "win32"  # where explorer always returns 1
