"""Read what is known of a photograph without a model.

Cameras and programs write tags into a sidecar, or into the file as XMP, IPTC or EXIF. The name may
hold a date, and the position gives the city.
"""

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from itertools import product
from math import isfinite
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from PIL import ExifTags, Image, ImageFile, IptcImagePlugin

from channelhash.indexing.cities import nearest_city
from channelhash.indexing.name_dates import FIRST_YEAR, date_of_name
from channelhash.search.browsing import file_date
from channelhash.search.items import Metadata, Value
from channelhash.utils.image_files import open_image, upright_size

#: Unchecked tags of a source, by key: dates and labels as lists, a camera as make and model.
_RawTags = Mapping[str, Any]

#: Metadata key of what tags were read from: `_VERSION`, size and times of the sidecar (``-`` if
#: there is none), and the keys of the tags, separated by commas. Keys that the next reading lacks
#: are cleared.
_TAGGED = "tags_from"
#: Version of the reading of tags, of dates in names and of the text in long images. With another
#: one, the next indexing reads all of them again.
_VERSION = 3
#: Versions that read all text in long images: the states of `_TAGGED` begin with one of these.
_READ_WHOLE = ("2 ", f"{_VERSION} ")

#: Bytes of the largest XMP that is read.
_LARGEST_XMP = 1 << 20
#: Characters of the longest text; longer ones are cut.
_LONGEST = 2000
#: Ratings by their numbers: -1 rejects an image.
_RATINGS: Mapping[float | None, int] = {float(stars): stars for stars in range(-1, 6)}
#: Focal lengths in mm are shorter.
_LONGEST_FOCAL = 10_000
#: Labels of an image at most.
_MOST = 200
_RDF = "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}"
#: XML namespaces that are read, with their prefixes in names of properties.
_NAMESPACES = {
    "http://purl.org/dc/elements/1.1/": "dc",
    "http://ns.adobe.com/xap/1.0/": "xmp",
    "http://ns.adobe.com/exif/1.0/": "exif",
    "http://ns.adobe.com/exif/1.0/aux/": "aux",
    "http://cipa.jp/exif/1.0/": "exifEX",
    "http://ns.adobe.com/tiff/1.0/": "tiff",
    "http://ns.adobe.com/photoshop/1.0/": "photoshop",
    "http://ns.adobe.com/lightroom/1.0/": "lr",
}
#: Properties of XMP that hold the date, the best first.
_XMP_DATES = (
    "exif:DateTimeOriginal",
    "photoshop:DateCreated",
    "exif:DateTimeDigitized",
    "xmp:CreateDate",
)
#: A coordinate and its two directions, the positive one first.
_AXES = {"Latitude": "NS", "Longitude": "EW"}
#: Tags of EXIF that hold the date, the best first.
_EXIF_DATES = (
    ExifTags.Base.DateTimeOriginal,
    ExifTags.Base.DateTimeDigitized,
    ExifTags.Base.DateTime,
)
_DECIMAL = r"\d+(?:\.\d*)?"
#: Decimal degrees in XMP, perhaps with a sign, and perhaps a direction.
_XMP_DECIMAL = re.compile(rf"([-+]?)({_DECIMAL})\s*([NSEW]?)", re.ASCII)
#: Degrees, minutes and perhaps seconds in XMP, and perhaps a direction.
_XMP_DEGREES = re.compile(rf"(\d+),\s*({_DECIMAL})(?:,\s*({_DECIMAL}))?\s*([NSEW]?)", re.ASCII)
#: Captions that cameras write into every file.
_NO_CAPTION = re.compile(
    r".*digital (still ?)?camera|sony dsc|(dcim|dcf)\b.*|(exif|jpeg).(jpeg|picture).*|samsung( "
    r"camera pictures)?|"
    r"image description|(default|untitled|hdr|sdr|rhdr|cof|edf|dav|oznor|fznor|mde|btf|camera)\w*",
    re.IGNORECASE,
)
#: Control characters and lone surrogates, which stores refuse.
_NO_TEXT = re.compile("[\0-\x1f\x7f\ud800-\udfff]+")
#: What follows the name of a make: what the firm does, and its legal form.
_FIRM = re.compile(
    r"[\s,]+(corporation|corp|company|co|inc|ltd|ag|gmbh|imaging|optical|camera|electronics"
    r"|computer)\b.*",
    re.IGNORECASE,
)


def read_header(path: Path, changed_ns: int) -> tuple[dict[str, Value], list[str]]:
    """Return the tags of an image and its sidecar, its date and its upright size, and a line for
    each source of tags that cannot be read. The image is not decoded.

    A date in the name is preferred to ``changed_ns``, the time of the last change, which may be
    that of a copy.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "IMG_20190714_102030.png")
    ...     Image.new("RGB", (4, 3)).save(path)
    ...     read_header(path, 0)[0]
    {'taken': None, 'date': '2019-07-14 10:20:30', 'width': 4, 'height': 3, 'tags_from': '3 - '}
    """
    sidecar, state = _sidecar_of(path)
    with open_image(path) as opened:
        width, height = upright_size(opened)
        tags, lines = _read_tags(opened, path, sidecar)
    date = None if "taken" in tags else date_of_name(path) or file_date(changed_ns)
    header = {"taken": None, "date": date, "width": width, "height": height, **tags}
    return {**header, _TAGGED: f"{state} {','.join(tags)}"}, lines


def are_tags_current(path: Path, metadata: Metadata) -> bool:
    """Return whether an item's tags are up to date: its sidecar and `_VERSION` are unchanged.

    Its image has to be the same, at the same place.

    >>> are_tags_current(Path("lost.jpg"), {"tags_from": "3 - rating"})
    True
    >>> are_tags_current(Path("lost.jpg"), {})
    False
    """
    return str(metadata.get(_TAGGED, "")).rpartition(" ")[0] == _sidecar_of(path)[1]


def has_read_whole(metadata: Metadata) -> bool:
    """Return whether the version that read an item with these metadata reads all text in long
    images.

    >>> has_read_whole({"tags_from": "2 - rating"}), has_read_whole({"tags_from": "- rating"})
    (True, False)
    """
    return str(metadata.get(_TAGGED, "")).startswith(_READ_WHOLE)


def cleared_tags(metadata: Metadata) -> dict[str, Value]:
    """Return key -> None for the tags that were read for an item, which the next reading may lack.
    A caption stays, as its code does.

    >>> cleared_tags({"tags_from": "- text,rating", "rating": 5})
    {'rating': None}
    """
    keys = str(metadata.get(_TAGGED, "")).rpartition(" ")[2]
    return {key: None for key in keys.split(",") if key and key != "text"}


def _sidecar_of(path: Path) -> tuple[Path | None, str]:
    """Return the sidecar of an image, None if there is none, and its state: `_VERSION`, and its
    size and times, or ``-``.

    A sidecar is ``1.jpg.xmp``, as darktable writes it, or ``1.xmp``, as Lightroom does.
    """
    stem = os.path.splitext(path)[0]
    for name in (f"{path}.xmp", f"{stem}.xmp", f"{path}.XMP", f"{stem}.XMP"):
        with suppress(OSError):
            stat = os.stat(name)
            state = f"{_VERSION} {stat.st_size} {stat.st_mtime_ns} {stat.st_ctime_ns}"
            return Path(name), state
    return None, f"{_VERSION} -"


def _read_tags(
    image: Image.Image, path: Path, sidecar: Path | None
) -> tuple[dict[str, Value], list[str]]:
    """Return the tags of an opened image, and a line for each source that cannot be read.

    The first source that has a key counts: sidecar, XMP in the file, IPTC, EXIF. For the date, EXIF
    precedes XMP in the file.
    """
    lines = list[str]()

    def read(source: Callable[[], _RawTags], file: Path, kind: str) -> dict[str, Value]:
        try:
            return _check(source())
        except Exception as error:  # Pillow raises errors of every type
            lines.append(f"{file}: its {kind} ({' '.join(str(error).split()) or 'damaged'})")
            return {}

    of_sidecar = read(lambda: _of_sidecar(sidecar, path), sidecar, "tags") if sidecar else {}
    exif = read(lambda: _of_exif(image), path, "EXIF")
    iptc = read(lambda: _of_iptc(image), path, "IPTC")
    xmp = read(lambda: _of_xmp(_parse_xmp(_xmp_in(image))), path, "XMP")
    if "taken" in exif:
        xmp.pop("taken", None)
    tags = exif | iptc | xmp | of_sidecar
    if "lat" in tags:
        tags |= nearest_city(tags["lat"], tags["lon"])  # type: ignore[arg-type]
    return tags, lines


def _content(file: Path) -> bytes:
    with open(file, "rb") as opened:
        return opened.read(_LARGEST_XMP + 1)


def _xmp_in(image: Image.Image) -> bytes:
    xmp = image.info.get("xmp") or image.info.get("XML:com.adobe.xmp") or b""
    return xmp.encode() if isinstance(xmp, str) else bytes(xmp).rstrip(b"\0")


def _of_sidecar(sidecar: Path, image: Path) -> _RawTags:
    """Return the tags in a sidecar; none if it names another ending: ``1.xmp`` beside ``1.jpg`` may
    belong to ``1.nef``.
    """
    values = _parse_xmp(_content(sidecar))
    ending = values.get("photoshop:SidecarForExtension", [""])[0].lower().lstrip(".")
    is_shared = sidecar.stem != image.name
    if is_shared and ending and f".{ending}" != image.suffix.lower():
        return {}
    return _of_xmp(values)


def _of_xmp(values: Mapping[str, list[str]]) -> _RawTags:
    def first(*names: str) -> str:
        return next((values[name][0] for name in names if name in values), "")

    hierarchy = [
        label
        for label in values.get("lr:hierarchicalSubject", ())
        if not label.startswith("darktable|")
    ]
    return {
        "taken": [first(name) for name in _XMP_DATES],
        "camera": (first("tiff:Make"), first("tiff:Model")),
        "lens": first("exifEX:LensModel", "aux:Lens"),
        "focal_length": first("exif:FocalLength"),
        "position": [
            _xmp_degrees(first(f"exif:GPS{name}"), first(f"exif:GPS{name}Ref"), axis)
            for name, axis in _AXES.items()
        ],
        "rating": first("xmp:Rating"),
        "title": first("dc:title"),
        "labels": values.get("dc:subject") or [label.rpartition("|")[2] for label in hierarchy],
        "text": first("dc:description"),
    }


class _NoDocumentType(ElementTree.TreeBuilder):
    """Builds XML trees, but refuses document types: they may define entities of any size."""

    def doctype(self, *_: object) -> None:
        raise ValueError("has a document type")


def _parse_xmp(content: bytes) -> dict[str, list[str]]:
    """Return property -> values, for properties that are texts or lists of texts."""
    if not content.strip():
        return {}
    if len(content) > _LARGEST_XMP:
        raise ValueError("more than 1 MB")
    root = ElementTree.XML(content, ElementTree.XMLParser(target=_NoDocumentType()))
    values = defaultdict[str, list[str]](list)
    for description in root.iter(f"{_RDF}Description"):
        for name, value in _properties(description):
            space, _, local = name.removeprefix("{").rpartition("}")
            if space in _NAMESPACES and value.strip():
                values[f"{_NAMESPACES[space]}:{local}"].append(value.strip())
    return dict(values)


def _properties(description: ElementTree.Element) -> Iterator[tuple[str, str]]:
    """Yield name and value of each property, and of each item of a list."""
    yield from description.items()
    for part in description:
        for item in part.findall(f"*/{_RDF}li") or [part]:
            yield part.tag, item.text or ""


def _of_iptc(image: Image.Image) -> _RawTags:
    if not isinstance(image, ImageFile.ImageFile):
        return {}
    blocks = IptcImagePlugin.getiptcinfo(image) or {}
    return {
        "title": blocks.get((2, 5)),
        "labels": blocks.get((2, 25)),
        "text": blocks.get((2, 120)),
    }


def _of_exif(image: Image.Image) -> _RawTags:
    exif = image.getexif()
    inner = exif.get_ifd(ExifTags.IFD.Exif)
    gps = exif.get_ifd(ExifTags.IFD.GPSInfo)
    make, model, caption = (_exif_text(exif.get(tag)) for tag in (0x010F, 0x0110, 0x010E))
    has_caption = not _NO_CAPTION.fullmatch(caption) and caption not in (make, model)
    return {
        "taken": [block.get(tag) for tag, block in product(_EXIF_DATES, (inner, exif))],
        "camera": (make, model),
        "lens": _exif_text(inner.get(ExifTags.Base.LensModel)),
        "focal_length": inner.get(ExifTags.Base.FocalLength),
        "position": [
            _degrees(gps.get(2), gps.get(1), "NS"),
            _degrees(gps.get(4), gps.get(3), "EW"),
        ],
        "rating": exif.get(0x4746),
        "title": _utf16(exif.get(ExifTags.Base.XPTitle)),
        "labels": _utf16(exif.get(ExifTags.Base.XPKeywords)).split(";"),
        "text": caption if has_caption else "",
    }


def _exif_text(value: object) -> str:
    """Return a text that Pillow has decoded as Latin-1, although most programs write UTF-8."""
    return _line(value.encode("latin-1", "replace") if isinstance(value, str) else value)


def _utf16(value: object) -> str:
    """Return a text that Windows has written into EXIF, given as bytes or a tuple of numbers."""
    if not isinstance(value, bytes | tuple):
        return ""
    return bytes(value).decode("utf-16-le", "ignore").rstrip("\0")


def _check(tags: _RawTags) -> dict[str, Value]:
    """Return the tags that are possible: texts on one line, numbers within their range."""
    make, model = map(_line, tags.get("camera", ("", "")))
    checked = {
        "taken": next(filter(None, map(_parse_date, tags.get("taken", ()))), None),
        "make": _FIRM.sub("", make),
        "camera": _camera(make, model),
        "lens": _lens(tags.get("lens")),
        "focal_length": _focal_length(tags.get("focal_length")),
        **_position(*tags.get("position", (None, None))),
        "rating": _RATINGS.get(_number(tags.get("rating"))),
        "title": _line(tags.get("title")),
        "labels": _labels(tags.get("labels")),
        "text": _line(tags.get("text")),
    }
    return {key: value for key, value in checked.items() if value not in (None, "", [])}


def _lens(value: object) -> str:
    """Return the name of a lens; an empty text for dashes, as of cameras without one."""
    name = _line(value)
    return name if any(map(str.isalnum, name)) else ""


def _focal_length(value: object) -> float | None:
    """Return a focal length in mm; None if it is impossible."""
    number = _number(value)
    return number if number and 0 < number < _LONGEST_FOCAL else None


def _labels(value: object) -> list[str]:
    """Return the first labels of one or several, each once."""
    values = value if isinstance(value, list) else [value]
    return list(dict.fromkeys(filter(None, map(_line, values))))[:_MOST]


def _line(value: object) -> str:
    """Return a text on one line, without what stores refuse. Bytes are UTF-8, or else Latin-1."""
    if isinstance(value, list):  # a block that occurs several times
        value = value[0] if value else ""
    if isinstance(value, bytes):
        with suppress(UnicodeDecodeError):
            return _line(value.decode())
        return _line(value.decode("latin-1"))
    return " ".join(_NO_TEXT.sub(" ", value).split())[:_LONGEST] if isinstance(value, str) else ""


def _camera(make: str, model: str) -> str:
    """Return a camera's model without its make.

    >>> _camera("NIKON CORPORATION", "NIKON D750"), _camera("FUJIFILM", "X100V")
    ('D750', 'X100V')
    >>> _camera("Canon", "Canonet")
    'Canonet'
    """
    first, _, rest = model.partition(" ")
    return rest if rest and first.lower() in make.lower().split() else model


def _number(value: object) -> float | None:
    """Return a number or a fraction, perhaps from a text; None if it is none, or not finite."""
    above, _, below = str(value).partition("/")
    try:
        number = float(above) / float(below or 1)
    except (ValueError, ZeroDivisionError):
        return None
    return round(number, 6) if isfinite(number) else None


def _xmp_degrees(text: str, direction: str, axis: str) -> float | None:
    """Return degrees as XMP writes them. The direction is in the text, in ``direction``, or implied
    by a sign.

    >>> _xmp_degrees("41,8.976N", "", "NS"), _xmp_degrees("-8.611", "", "EW")
    (41.1496, -8.611)
    >>> _xmp_degrees("41,8", "N", "NS")  # may be 41.8
    """
    decimal = _XMP_DECIMAL.fullmatch(text)
    if decimal:
        return _decimal_degrees(decimal, direction, axis)
    parts = _XMP_DEGREES.fullmatch(text)
    if parts is None:
        return None
    degrees, minutes, seconds, letter = parts.groups()
    may_be_decimal = "." not in minutes and not (seconds or letter)
    numbers = list(filter(None, (degrees, minutes, seconds)))
    return None if may_be_decimal else _degrees(numbers, letter or direction, axis)


def _decimal_degrees(decimal: re.Match[str], direction: str, axis: str) -> float | None:
    """Return decimal degrees, whose sign and direction must not contradict each other."""
    sign, degrees, letter = decimal.groups()
    by_sign = axis[sign == "-"]
    said = letter or direction or by_sign
    is_consistent = not sign or _line(said)[:1].upper() == by_sign
    return _degrees([degrees], said, axis) if is_consistent else None


def _degrees(parts: Any, direction: object, axis: str) -> float | None:
    """Return degrees, minutes and seconds as degrees; None if the direction is missing, or does not
    belong to the axis.
    """
    numbers = [_number(part) for part in parts] if isinstance(parts, list | tuple) else []
    sign = {axis[0]: 1, axis[1]: -1}.get(_line(direction)[:1].upper())
    if sign is None or not 1 <= len(numbers) <= 3:
        return None
    degrees = 0.0
    for number, most, unit in zip(numbers, (180, 60, 60), (1, 60, 3600), strict=False):
        if number is None or not 0 <= number <= most:
            return None
        degrees += number / unit
    return sign * degrees


def _position(latitude: float | None, longitude: float | None) -> dict[str, Value]:
    """Return coordinates; none if one is missing or impossible, or for 0, 0, which cameras write
    before they know their position.
    """
    if latitude is None or longitude is None or abs(latitude) > 90 or abs(longitude) > 180:
        return {}
    return {"lat": round(latitude, 6), "lon": round(longitude, 6)} if latitude or longitude else {}


#: Year, month and day, then perhaps hour and minute, and perhaps second.
_DATE = re.compile(
    r"\s*(\d{4})\D?(\d\d?)\D?(\d\d?)(?:[T\s]+(\d\d?)\D?(\d\d?)(?:\D?(\d\d?))?)?", re.ASCII
)


def _parse_date(value: object) -> str | None:
    """Return a camera's date as ``"2019-07-14 10:20:30"``; None if it is empty or impossible.

    Any separators will do, and seconds or the whole time may be missing. Time zones, fractions of
    seconds and impossible times are ignored. Some telephones write 24 for the first hour of a day.

    >>> _parse_date("2019:07:14 10:20"), _parse_date("0000:00:00 00:00:00")
    ('2019-07-14 10:20:00', None)
    >>> _parse_date("2019-07-14T24:20:30.5+02:00")
    '2019-07-14 00:20:30'
    """
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    match = _DATE.match(text)
    if match is None:
        return None
    year, month, day, *time = (int(part or 0) for part in match.groups())
    if year < FIRST_YEAR:
        return None
    try:
        return str(_at_time(datetime(year, month, day), *time))
    except ValueError:
        return None


def _at_time(day: datetime, hour: int, minute: int, second: int) -> datetime:
    """Return a day at a time, if that is possible."""
    if hour > 24 or minute >= 60 or second > 60:
        return day
    return day.replace(hour=hour % 24, minute=minute, second=min(second, 59))
