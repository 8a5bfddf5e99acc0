"""The one error a user is meant to read: one line that says what, where and what to do, and repeats
no password.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import unquote

# One letter before a colon is a drive of Windows. Without an upper bound, a word of 70,000 letters
# takes minutes.
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
# What marks the name of an argument in a message. No file name and no id has these characters.
_ARGUMENT = re.compile("\x0e(\\w+)\x0f")


def argument(name: str) -> str:
    """Return the name of an argument of the library, marked for the message of an error.

    The message itself says it as Python does. A command line or a server spells it as its own
    users do, see `InputError.spelled`.

    >>> str(InputError(f"{argument('k')} 0: takes at least 1 answer"))
    'k 0: takes at least 1 answer'
    """
    return f"\x0e{name}\x0f"


def hide_secrets(text: str) -> str:
    """Return a text with … in the place of the passwords, tokens and keys of the addresses in it.

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
    if match := _ADDRESS.search(address):
        scheme = match[1].lower()
        rest = match[2]
        if scheme.startswith("http"):
            rest = (
                re.split(r"[?#]", rest, maxsplit=1)[0]
                if "@" not in rest
                else rest.rpartition("@")[0] + "@"
            )
        holds_secret = _hide(scheme, rest) != rest
    else:
        scheme = "postgresql:"
        holds_secret = bool(_SERVER_OF_LIBPQ.search(address) and _PASSWORD_OF_LIBPQ.search(address))
    if holds_secret:
        remedy = "the settings of its library, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        if scheme.startswith("postgres"):
            remedy = "the variable PGPASSWORD, ~/.pgpass or ~/.pg_service.conf"
        elif scheme.startswith("milvus"):
            remedy = "the variable MILVUS_TOKEN"
        name = scheme.partition(":")[0]
        raise InputError(
            f"{name}://…: an address ends up in logs; put the password or key into {remedy}, not "
            "here"
        )


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
    """Return what stands before the host: more than the standard says, where odd characters of a
    password cut it.
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
        """Return the message with the names of arguments as a face of the library spells them.

        >>> InputError(f"{argument('like')} a: no such item").spelled(lambda name: f"--{name}")
        '--like a: no such item'
        """
        return _ARGUMENT.sub(lambda match: spell(match[1]), self._line)


class InputError(_OneLineError):
    """Something the user gave (a file, a row, a key, an option) cannot be used.

    The message is one line and names the place. The command line prints it and exits with status 2.
    """


class RefusedError(InputError):
    """A web server refuses a file."""


@contextmanager
def naming(place: object, kind: type[Exception] = InputError) -> Iterator[None]:
    """Raise an error of the block as `InputError` that names a place: ``PLACE: REASON``."""
    try:
        yield
    except kind as error:
        raise InputError(f"{place}: {error}") from None


class JobError(_OneLineError):
    """A job that was set up correctly failed while it ran (a loss turned NaN, a disk filled up);
    exit status 1.
    """


class NoSpaceError(JobError):
    """A disk or a quota is full: what was written before is kept, and the job goes on when there is
    room.
    """
