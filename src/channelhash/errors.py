"""Errors for users: one line that says what, where and what to do, and repeats no password."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import unquote

# One letter before a colon is a drive of Windows. Without an upper bound, matching a word of 70,000
# letters takes minutes.
_SCHEME = r"[a-z][a-z0-9+.-]{1,40}:/{1,2}|(?:postgres|milvus)[a-z0-9+.-]*:"
_ADDRESS = re.compile(rf"({_SCHEME})(.*)", re.IGNORECASE | re.DOTALL)
# Punctuation at the end belongs to the sentence around the address.
_ADDRESS_IN_TEXT = re.compile(rf"({_SCHEME})(\S*?)(?=[)'\",.:;]*(?:\s|$))", re.IGNORECASE)
_PASSWORD_OF_LIBPQ = re.compile(r"(\b(?:ssl|pg)?passw(?:or)?d\s*=\s*)('[^']*'|\S+)", re.IGNORECASE)
_SERVER_OF_LIBPQ = re.compile(r"\b(?:host|hostaddr|service|dbname|user)\s*=", re.IGNORECASE)
_HOSTS = re.compile(r"(?:(?:\[[^\[\]]*\]|[^:,\[\]]*)(?::\d*)?(?:,|$))*")
_OPTION = re.compile(r"(?:^|[?&;#\s])([^=&;?#\s]+)=(?=.)", re.DOTALL)
_SECRET = re.compile(
    r"passw|passphrase|pwd|^pass$|secret|token|signature|credential|^sig$|^auth(orization)?$|^key$"
    r"|^(hdn\w+|md5|hmac|jwt|sas)$|(api|access|account|auth|client|server)[-_]?key",
    re.IGNORECASE,
)
# Marks an argument's name in a message. Neither file names nor ids hold these characters.
_ARGUMENT = re.compile("\x0e(\\w+)\x0f")


def argument(name: str) -> str:
    """Return an argument's name, marked for the message of an error.

    The message shows it as Python spells it. Each face (command line, HTTP, MCP) replaces it by its
    own spelling, see `InputError.spelled`.

    >>> str(InputError(f"{argument('k')} 0: takes at least 1 answer"))
    'k 0: takes at least 1 answer'
    """
    return f"\x0e{name}\x0f"


def hide_secrets(text: str) -> str:
    """Replace the passwords, tokens and keys in the addresses of a text by ….

    >>> hide_secrets("s3://key:secret@bucket/a.tar: no access; see https://host/a.tar?sig=1a2b")
    's3://…@bucket/a.tar: no access; see https://host/a.tar?sig=…'
    """
    hidden = _ADDRESS_IN_TEXT.sub(lambda match: match[1] + _hide(match[1], match[2]), text)
    return _PASSWORD_OF_LIBPQ.sub(r"\1…", hidden)


def check_address(address: str) -> None:
    """Refuse an address with a password, a token or a key: addresses end up in logs.

    The options of a web address may sign it: there is no other way to give them.

    Raises:
        InputError: it has one; the line does not repeat it.

    >>> check_address("postgresql://me@host/photos"), check_address("https://host/a.tar?sig=1a2b")
    (None, None)
    """
    scheme = _scheme_with_secret(address)
    if scheme is None:
        return
    remedy = "the settings of its library, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    if scheme.startswith("postgres"):
        remedy = "the variable PGPASSWORD, ~/.pgpass or ~/.pg_service.conf"
    elif scheme.startswith("milvus"):
        remedy = "the variable MILVUS_TOKEN"
    raise InputError(
        f"{scheme}://…: an address ends up in logs; put the password or key into {remedy}, not here"
    )


def _scheme_with_secret(address: str) -> str | None:
    """Return the scheme of an address that holds a secret; None for any other address."""
    match = _ADDRESS.search(address)
    if match is None:  # perhaps pairs of libpq, such as host=h password=…
        pairs = _SERVER_OF_LIBPQ.search(address) and _PASSWORD_OF_LIBPQ.search(address)
        return "postgresql" if pairs else None
    scheme = match[1].lower()
    rest = match[2]
    if scheme.startswith("http"):
        user, at, _ = rest.rpartition("@")
        rest = user + at if at else re.split("[?#]", rest, maxsplit=1)[0]
    return None if _hide(scheme, rest) == rest else scheme.partition(":")[0]


def _hide(scheme: str, rest: str) -> str:
    """Return what follows the scheme of an address without its secrets."""
    user = _user_info(scheme, rest)
    if unquote(user).partition(":")[2] or (user and "http" in scheme.lower()):
        rest = f"…{rest[len(user) :]}"
    for option in _OPTION.finditer(rest):
        if _SECRET.search(unquote(option[1])):
            return f"{rest[: option.end()]}…"  # an odd password may hold an & as well
    return rest


def _user_info(scheme: str, rest: str) -> str:
    """Return what stands before the host, also where a password has characters that should have
    been percent-encoded.
    """
    user, _, hosts = re.split("[/?#]", rest, maxsplit=1)[0].rpartition("@")
    before = rest.rpartition("@")[0]
    if not _HOSTS.fullmatch(hosts):
        return before
    # A port may be the beginning of a password; behind one, a store's address has an @ in the
    # values of options alone.
    of_store = scheme.lower().startswith(("postgres", "milvus"))
    if of_store and not user and not re.search(r"[?&][\w.-]+=[^&]*$", before):
        return before
    return user


class _OneLineError(Exception):
    def __init__(self, line: str = "") -> None:
        self._line = hide_secrets(line)
        super().__init__(_ARGUMENT.sub(r"\1", self._line))

    def spelled(self, spell: Callable[[str], str]) -> str:
        """Return the message with each argument spelled by ``spell``.

        >>> InputError(f"{argument('like')} a: no such item").spelled(lambda name: f"--{name}")
        '--like a: no such item'
        """
        return _ARGUMENT.sub(lambda match: spell(match[1]), self._line)


class InputError(_OneLineError):
    """A file, a row, a key or an option that the user gave cannot be used.

    The command line prints the message and exits with status 2.
    """


class RefusedError(InputError):
    """A web server refuses a file."""


@contextmanager
def naming(place: object, kind: type[Exception] = InputError) -> Iterator[None]:
    """Raise an error of the block as `InputError` that names a place, once: ``PLACE: REASON``."""
    try:
        yield
    except kind as error:
        line = error.spelled(argument) if isinstance(error, _OneLineError) else str(error)
        is_named = line.startswith((f"{place}: ", f"{place}, "))
        raise InputError(line if is_named else f"{place}: {line}") from None


class JobError(_OneLineError):
    """A job that was set up correctly failed while it ran: a loss turned NaN, a disk filled up.

    The command line prints the message and exits with status 1.
    """


class NoSpaceError(JobError):
    """A disk or a quota is full. What was written is kept, and the job can be resumed."""
