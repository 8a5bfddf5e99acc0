"""Download official archives: resume, check, and unpack them in one step."""

import hashlib
import http.client
import time
import urllib.error
import urllib.request
import zipfile
from pathlib import Path
from typing import NamedTuple

from channelhash.errors import JobError
from channelhash.utils.decode import reading
from channelhash.utils.files import space_for, temporary_folder
from channelhash.utils.progress import Progress, StageProgress, no_stage_progress
from channelhash.utils.typed_settings import pick


class _Source(NamedTuple):
    """An archive to download.

    Attributes:
        url: address.
        folder: folder to unpack to, below the data set's root.
        md5: published sum, if known.

    >>> _Source("https://example.org/files/tags.zip", "tags").file_name
    'tags.zip'
    """

    url: str
    folder: str
    md5: str | None = None

    @property
    def file_name(self) -> str:
        """The last part of the address."""
        return self.url.rpartition("/")[2]


#: Folder of MIRFLICKR's archives.
_LIACS = "https://press.liacs.nl/mirflickr/mirflickr25k.v3b"
#: Folder of NUS-WIDE's archives.
_NUS = "https://lms.comp.nus.edu.sg/wp-content/uploads/2019/research/nuswide"

#: Addresses: press.liacs.nl/mirflickr/mirdownload.html and
#: lms.comp.nus.edu.sg/…/nuswide/NUS-WIDE.html. MIRFLICKR's MD5 sums are those that its download
#: page and mirrors of it give; none are published for NUS-WIDE.
_SOURCES: dict[str, tuple[_Source, ...]] = {
    "mirflickr25k": (
        _Source(f"{_LIACS}/mirflickr25k.zip", "pictures", "a23d0a8564ee84cda5622a6c2f947785"),
        _Source(
            f"{_LIACS}/mirflickr25k_annotations_v080.zip",
            "annotations",
            "aa0138c79892b1b670184d142380948f",
        ),
    ),
    "nuswide": (
        _Source(f"{_NUS}/ImageList.zip", "ImageList"),
        _Source(f"{_NUS}/Groundtruth.zip", "Groundtruth"),
        _Source(f"{_NUS}/NUS_WID_Tags.zip", "NUS_WID_Tags"),
    ),
}

#: Connections to try for an archive.
_ATTEMPTS = 5
#: Seconds before the next attempt; longer after those that bring nothing.
_PAUSE = 1.0
#: Bytes read at once.
_CHUNK = 2**20


def download(name: str, root: Path, progress: StageProgress = no_stage_progress) -> list[str]:
    """Fetch and unpack the archives of a data set; make no request for those already unpacked.

    A broken connection is resumed where it stopped (a range request), also by the next call. A file
    that changed on the server meanwhile does not pass the check of its archive.
    """
    fetched = []
    for source in pick(_SOURCES, name, "data set"):
        target = root / source.folder
        if target.is_dir():
            continue
        archive = root / "archives" / source.file_name
        if not archive.exists():
            _fetch(source, archive, progress(source.file_name))
        _check(source, archive)
        _unpack(archive, target)
        fetched.append(source.file_name)
    return fetched


def _fetch(source: _Source, archive: Path, progress: Progress) -> None:
    """Fetch an archive over as many connections as needed."""
    part = archive.with_name(archive.name + ".part")
    part.parent.mkdir(parents=True, exist_ok=True)
    part.touch()
    for attempt in range(_ATTEMPTS):
        before = part.stat().st_size
        try:
            with space_for(part):
                _one_connection(source, part, progress)
            part.replace(archive)
            return
        except (OSError, http.client.HTTPException) as error:
            problem = _problem_of(error, source, part)
        have = part.stat().st_size
        if attempt + 1 < _ATTEMPTS:
            time.sleep(_PAUSE if have > before else _PAUSE * 2**attempt)
    raise JobError(
        f"{source.url}: {problem}; {have} bytes are kept, the same command goes on from there"
    )


def _problem_of(error: Exception, source: _Source, part: Path) -> str:
    """Return what ended a connection; raise `JobError` if another attempt is of no use."""
    if not isinstance(error, urllib.error.HTTPError):
        return str(getattr(error, "reason", "") or error or type(error).__name__)
    problem = f"the server answers {error.code} {error.reason}"
    if error.code == 416:  # asked from the very end: a finished part, or another file
        part.unlink()
    if error.code < 500:
        raise JobError(f"{source.url}: {problem}") from None
    return problem


def _one_connection(source: _Source, part: Path, progress: Progress) -> None:
    """Append to ``part`` until the server has sent all."""
    have = part.stat().st_size
    headers = {"User-Agent": "channelhash"} | ({"Range": f"bytes={have}-"} if have else {})
    with urllib.request.urlopen(
        urllib.request.Request(source.url, headers=headers), timeout=60
    ) as response:
        have = have if response.status == 206 else 0
        total = have + int(response.headers.get("Content-Length", 0))
        with open(part, "ab" if have else "wb") as file:
            while chunk := response.read(_CHUNK):
                file.write(chunk)
                have += len(chunk)
                progress(have, max(total, have))
    if have < total:
        raise ConnectionError(f"the connection ended after {have} of {total} bytes")


def _check(source: _Source, archive: Path) -> None:
    """Compare the sum with the published one; set a wrong archive aside."""
    if source.md5 is None:
        return
    with open(archive, "rb") as file:
        md5 = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if md5 != source.md5:
        aside = archive.replace(archive.with_name(archive.name + ".bad"))
        wrong = f"MD5 is {md5}, published is {source.md5}"
        raise JobError(
            f"{archive}: {wrong}; set aside as {aside.name}, the same command downloads it again"
        )


def _unpack(archive: Path, target: Path) -> None:
    """Unpack a ``.zip`` into the new folder ``target``, in one step: it is complete or does not
    exist.

    No member lands outside it, and none becomes a link: `zipfile` sees to that.
    """
    with (
        reading(archive, "damaged archive", "remove it and download again"),
        zipfile.ZipFile(archive) as packed,
        temporary_folder(target) as temporary,
    ):
        packed.extractall(temporary)  # as many bytes as the headers say, compared with their CRC-32
        temporary.replace(target)
