"""Download official archives: resume, check, unpack without trusting them, and put in place in one step."""

import hashlib
import http.client
import json
import time
import urllib.error
import urllib.request
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import urlparse

from channelhash.errors import InputError, JobError
from channelhash.utils.files import space_for, temporary_folder, write_text
from channelhash.utils.progress import Progress, StageProgress
from channelhash.utils.reading import reading
from channelhash.utils.typed_settings import pick


@dataclass(frozen=True)
class Source:
    """An archive to download.

    Attributes:
        url: address.
        folder: folder to unpack to, below the data set's root.
        size: bytes, if known.
        md5: published sum, if known; SHA-256 is recorded at the first download.

    >>> Source("https://example.org/files/tags.zip", "tags").file_name
    'tags.zip'
    """

    url: str
    folder: str
    size: int | None = None
    md5: str | None = None

    @property
    def file_name(self) -> str:
        """The last part of the address."""
        return urlparse(self.url).path.rpartition("/")[2]


_LIACS = "https://press.liacs.nl/mirflickr/mirflickr25k.v3b"
_NUS = "https://lms.comp.nus.edu.sg/wp-content/uploads/2019/research/nuswide"

#: Addresses: press.liacs.nl/mirflickr/mirdownload.html and lms.comp.nus.edu.sg/…/nuswide/NUS-WIDE.html. MIRFLICKR's
#: sizes and MD5 sums are those that its download page and mirrors of it give; none are published for NUS-WIDE.
SOURCES: dict[str, tuple[Source, ...]] = {
    "mirflickr25k": (
        Source(f"{_LIACS}/mirflickr25k.zip", "pictures", 3_069_184_257, "a23d0a8564ee84cda5622a6c2f947785"),
        Source(
            f"{_LIACS}/mirflickr25k_annotations_v080.zip", "annotations", 207_220, "aa0138c79892b1b670184d142380948f"
        ),
    ),
    "nuswide": (
        Source(f"{_NUS}/ImageList.zip", "ImageList"),
        Source(f"{_NUS}/Groundtruth.zip", "Groundtruth"),
        Source(f"{_NUS}/NUS_WID_Tags.zip", "NUS_WID_Tags"),
    ),
}

_ATTEMPTS = 5
_CHUNK = 2**20
#: MIRFLICKR-25k has about 76,000 members and 3 GB; NUS-WIDE's tag archive expands to about 1 GB.
MOST_MEMBERS = 500_000
MOST_BYTES = 40 * 2**30
#: Text compresses well, but not like this; members below a megabyte are not judged by it.
MOST_RATIO = 200


def download(
    name: str,
    root: Path,
    sources: tuple[Source, ...] | None = None,
    progress: StageProgress | None = None,
    wait: float = 1.0,
) -> list[str]:
    """Fetch and unpack the archives of a data set; make no request for those already unpacked.

    A broken connection is resumed where it stopped (a range request, if the server still has the same file), also by
    the next call. The SHA-256 of each archive is written to ``checksums.json`` and compared whenever the archive is
    fetched again.

    Args:
        name: ``"mirflickr25k"`` or ``"nuswide"`` (lists, labels and tags: its images have no official address).
        root: the data set's folder.
        sources: archives instead of the official ones.
        progress: called with an archive's name; returns a callback for (bytes, total bytes).
        wait: seconds before the first retry, doubled for each further retry.

    Returns:
        Names of the fetched archives.

    Raises:
        InputError: unknown data set, an address that is not http(s), or an archive that cannot be trusted.
        JobError: the server cannot be reached or answers with an error, or the bytes are not those expected.
    """
    fetched = []
    for source in pick(SOURCES, name, "data set") if sources is None else sources:
        target = root / source.folder
        if target.is_dir():
            continue
        archive = root / "archives" / source.file_name
        if not archive.exists():
            report = progress(source.file_name) if progress else lambda done, total: None
            _fetch(source, archive, report, wait)
        _compare(source, archive, root / "checksums.json")
        unpack(archive, target)
        fetched.append(source.file_name)
    return fetched


def _fetch(source: Source, archive: Path, progress: Progress, wait: float) -> None:
    """Fetch an archive over as many connections as needed."""
    if urlparse(source.url).scheme not in ("http", "https"):
        raise InputError(f"{source.url}: not an http or https address")
    part, tag_file = archive.with_name(archive.name + ".part"), archive.with_name(archive.name + ".part.json")
    part.parent.mkdir(parents=True, exist_ok=True)
    for attempt in range(_ATTEMPTS):
        before = part.stat().st_size if part.exists() else 0
        try:
            with space_for(part):
                _one_connection(source, part, tag_file, progress)
            part.replace(archive)
            tag_file.unlink(missing_ok=True)
            return
        except urllib.error.HTTPError as error:
            if error.code < 500:
                raise JobError(f"{source.url}: the server answers {error.code} {error.reason}") from None
            problem = f"the server answers {error.code} {error.reason}"
        except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError) as error:
            problem = str(getattr(error, "reason", "") or error or type(error).__name__)
        if attempt + 1 < _ATTEMPTS:
            moved = part.exists() and part.stat().st_size > before
            time.sleep(wait if moved else wait * 2**attempt)
    have = part.stat().st_size if part.exists() else 0
    raise JobError(f"{source.url}: {problem}; {have} bytes are kept, the same command goes on from there")


def _one_connection(source: Source, part: Path, tag_file: Path, progress: Progress) -> None:
    """Append to ``part`` until the server has sent all; start over if the file on the server has changed."""
    have = part.stat().st_size if part.exists() else 0
    tag = json.loads(tag_file.read_text(encoding="utf-8")) if have and tag_file.exists() else None
    headers = {"User-Agent": "channelhash"}
    if have and tag:  # without a tag the rest may belong to another file
        headers |= {"Range": f"bytes={have}-", "If-Range": tag}
    request = urllib.request.Request(source.url, headers=headers)
    try:
        response = urllib.request.urlopen(request, timeout=60)
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:  # asked from the very end: a finished part, or another file
            part.unlink()
        raise
    with response:
        if response.status != 206:
            have = 0
        current = response.headers.get("ETag") or response.headers.get("Last-Modified")
        if current and not current.startswith("W/"):
            write_text(tag_file, json.dumps(current))
        length = response.headers.get("Content-Length")
        total = have + int(length) if length else source.size or 0
        with open(part, "ab" if have else "wb") as file:
            while chunk := response.read(_CHUNK):
                file.write(chunk)
                have += len(chunk)
                progress(have, max(total, have))
    if total and have < total:
        raise ConnectionError(f"the connection ended after {have} of {total} bytes")


def _compare(source: Source, archive: Path, checksums: Path) -> None:
    """Compare size and sums with the expected ones and record the SHA-256; set a wrong archive aside."""
    sums = json.loads(checksums.read_text(encoding="utf-8")) if checksums.exists() else {}
    sha256, md5 = hashlib.sha256(), hashlib.md5(usedforsecurity=False)
    with open(archive, "rb") as file:
        while chunk := file.read(_CHUNK):
            sha256.update(chunk)
            md5.update(chunk)
    size, recorded = archive.stat().st_size, sums.get(source.file_name)
    wrong = None
    if source.size is not None and size != source.size:
        wrong = f"has {size} bytes, expected {source.size}"
    elif source.md5 is not None and md5.hexdigest() != source.md5:
        wrong = f"MD5 is {md5.hexdigest()}, published is {source.md5}"
    elif recorded is not None and sha256.hexdigest() != recorded:
        wrong = f"SHA-256 is {sha256.hexdigest()}, recorded in {checksums} is {recorded}"
    if wrong:
        aside = archive.with_name(archive.name + ".bad")
        archive.replace(aside)
        raise JobError(f"{archive}: {wrong}; set aside as {aside.name}, the same command downloads it again")
    write_text(checksums, json.dumps(sums | {source.file_name: sha256.hexdigest()}, indent=2))


def unpack(archive: Path, target: Path) -> None:
    """Unpack a ``.zip`` into the new folder ``target``, in one step: it is complete or does not exist.

    Raises:
        InputError: the archive is damaged; a member's path leads outside, or it is a link or a device; there are too
            many members or bytes, or a member expands suspiciously. Nothing was unpacked then.
    """
    with (
        reading(archive, "damaged archive", "remove it and download again"),
        zipfile.ZipFile(archive) as packed,
        temporary_folder(target) as temporary,
    ):
        members = packed.infolist()
        _check_members(archive, members)
        for member in members:
            packed.extract(member, temporary)  # as many bytes as its header says, compared with its CRC-32
        temporary.replace(target)


def _check_members(archive: Path, members: list[zipfile.ZipInfo]) -> None:
    if len(members) > MOST_MEMBERS:
        raise InputError(f"{archive}: {len(members)} members, more than {MOST_MEMBERS} are not unpacked")
    total = sum(member.file_size for member in members)
    if total > MOST_BYTES:
        raise InputError(f"{archive}: {total} bytes unpacked, more than {MOST_BYTES} are not unpacked")
    for member in members:
        name, path = member.orig_filename, PurePosixPath(member.filename)
        outside = path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name
        if outside or not member.filename.strip("/"):
            raise InputError(f"{archive}: the member {name!r} leads outside the folder; nothing was unpacked")
        if member.external_attr >> 28 not in (0, 4, 8):  # the file type of Unix modes; none, a folder or a file
            raise InputError(f"{archive}: the member {name!r} is a link or a device; nothing was unpacked")
        if member.file_size > max(_CHUNK, MOST_RATIO * member.compress_size):
            raise InputError(f"{archive}: the member {name!r} expands more than {MOST_RATIO} times")
