"""What is known of photographs without a model: what programs wrote, byte by byte, dates in names,
text in pictures.
"""

import io
import random
import struct
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from fastapi.testclient import TestClient
from hypothesis import example, given, settings, strategies as st
from PIL import ExifTags, Image, ImageDraw, ImageFont
from PIL.PngImagePlugin import PngInfo
from PIL.TiffImagePlugin import IFDRational, ImageFileDirectory_v2

import channelhash as ch
from channelhash.indexing.cities import load_cities, nearest_city
from channelhash.indexing.fit import NewCodes
from channelhash.indexing.metadata import (
    _check,
    _parse_date,
    read_header,
)
from channelhash.indexing.ocr import open_reader
from channelhash.indexing.source import Source
from channelhash.indexing.stores import add_to_store, create_store, read_again
from channelhash.search import Address
from channelhash.search.checks import check_metadata
from channelhash.serve.app import create_app
from channelhash.serve.service import Service
from channelhash.utils.image_files import decode, open_image, raw_problem
from refusals import check_refusal
from small_stores import encode_into, picture_folder, small_model

places = pytest.mark.skipif(load_cities() is None, reason="needs the extra places")
EXIF, GPS = ExifTags.IFD.Exif, ExifTags.IFD.GPSInfo
XMP = (
    '<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>\n<x:xmpmeta xmlns:x="adobe:ns:meta/">'
    '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"><rdf:Description rdf:about=""'
    ' xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:xmp="http://ns.adobe.com/xap/1.0/"'
    ' xmlns:exif="http://ns.adobe.com/exif/1.0/" xmlns:tiff="http://ns.adobe.com/tiff/1.0/"'
    ' xmlns:aux="http://ns.adobe.com/exif/1.0/aux/" xmlns:lr="http://ns.adobe.com/lightroom/1.0/" '
    "{}>{}"
    '</rdf:Description></rdf:RDF></x:xmpmeta>\n<?xpacket end="w"?>'
)
#: As Lightroom writes a sidecar, and as darktable does.
LIGHTROOM = XMP.format(
    'xmp:Rating="4" xmp:CreateDate="2019-07-14T10:20:30.12" tiff:Make="FUJIFILM" '
    'tiff:Model="X100V" aux:Lens="23.0 mm'
    ' f/2.0" exif:FocalLength="230/10" exif:GPSLatitude="41,8.976N" exif:GPSLongitude="8,36.66W"',
    '<dc:title><rdf:Alt><rdf:li xml:lang="x-default">Ribeira &amp; '
    "Douro</rdf:li></rdf:Alt></dc:title>"
    "<dc:subject><rdf:Bag><rdf:li>river</rdf:li>\n<rdf:li>boat</rdf:li></rdf:Bag></dc:subject>"
    '<dc:description><rdf:Alt><rdf:li xml:lang="x-default">boats on\n a '
    "river</rdf:li></rdf:Alt></dc:description>"
    '<exif:Flash rdf:parseType="Resource"><exif:Fired>False</exif:Fired></exif:Flash>',
)
DARKTABLE = XMP.format(
    'exif:DateTimeOriginal="2019:07:14 10:20:30" xmp:Rating="-1"',
    "<lr:hierarchicalSubject><rdf:Seq><rdf:li>darktable|format|cr2</rdf:li><rdf:li>Places|Portugal|Porto</rdf:li>"
    "</rdf:Seq></lr:hierarchicalSubject>",
)
IN_PORTO = {"lat": 41.1496, "lon": -8.611, "place": "Porto", "country": "Portugal"}


def tags_of(path):
    """The tags of a file without what every picture has, and the lines on what cannot be read."""
    header, lines = read_header(path, 0)
    fixed = ("date", "width", "height", "tags_from")
    return {
        key: value for key, value in header.items() if value is not None and key not in fixed
    }, lines


def iptc(**fields):
    """The block of a JPEG file in which Photoshop keeps IPTC's data sets, by numbers ``_25``."""
    data = b""
    for name, values in fields.items():
        for value in values:
            data += b"\x1c\x02" + bytes([int(name[1:])]) + struct.pack(">H", len(value)) + value
    block = (
        b"Photoshop 3.0\x008BIM\x04\x04\0\0"
        + struct.pack(">I", len(data))
        + data
        + b"\0" * (len(data) % 2)
    )
    return b"\xff\xed" + struct.pack(">H", len(block) + 2) + block


def photograph(path, exif=None, inner=None, gps=None, xmp=b"", block=b""):
    written = Image.Exif()
    written.update(exif or {})
    written.get_ifd(EXIF).update(inner or {})
    written.get_ifd(GPS).update(gps or {})
    text = PngInfo()
    text.add_itxt("XML:com.adobe.xmp", xmp.decode())
    Image.new("RGB", (8, 6)).save(path, exif=written, pnginfo=text, **{"xmp": xmp} if xmp else {})
    if block:
        content = path.read_bytes()
        path.write_bytes(content[:2] + block + content[2:])
    return path


FULL = dict(
    exif={
        0x010F: "NIKON CORPORATION",
        0x0110: "NIKON D750",
        0x010E: "Praça da Ribeira".encode(),
        0x4746: 3,
        0x9C9B: "Douro".encode("utf-16-le") + b"\0\0",
        0x9C9E: "Fluß;Boot".encode("utf-16-le") + b"\0\0",
    },
    inner={0x9003: "2018:01:02 03:04:05", 0xA434: "50.0 mm f/1.8", 0x920A: IFDRational(50, 1)},
    gps={1: "N", 2: (41, 8, IFDRational(5856, 100)), 3: "W", 4: (8, 36, IFDRational(3960, 100))},
)


@places
def test_exif_iptc_xmp_and_sidecar_say_the_more_the_earlier_in_this_order(tmp_path):
    said = {
        "taken": "2018-01-02 03:04:05",
        "make": "NIKON",
        "camera": "D750",
        "lens": "50.0 mm f/1.8",
        "focal_length": 50.0,
        "rating": 3,
        "title": "Douro",
        "labels": ["Fluß", "Boot"],
        "text": "Praça da Ribeira",
        **IN_PORTO,
    }
    assert tags_of(photograph(tmp_path / "1.jpg", **FULL)) == (said, [])
    block = iptc(
        _5=[b"T\xedtulo"], _25=["Água".encode(), b"rio"], _120=[b"a caption\r\nof two lines"]
    )
    said |= {"title": "Título", "labels": ["Água", "rio"], "text": "a caption of two lines"}
    assert tags_of(photograph(tmp_path / "1.jpg", **FULL, block=block)) == (said, [])
    path = photograph(tmp_path / "1.jpg", **FULL, block=block, xmp=DARKTABLE.encode())
    assert tags_of(path) == (said | {"labels": ["Porto"], "rating": -1}, [])
    (tmp_path / "1.xmp").write_text(LIGHTROOM, encoding="utf-8")
    said = {
        "taken": "2019-07-14 10:20:30",
        "make": "FUJIFILM",
        "camera": "X100V",
        "lens": "23.0 mm f/2.0",
        "focal_length": 23.0,
        "rating": 4,
        "title": "Ribeira & Douro",
        "labels": ["river", "boat"],
        "text": "boats on a river",
        **IN_PORTO,
    }
    assert tags_of(path) == (said, [])
    (tmp_path / "1.jpg.xmp").write_text(XMP.format('xmp:Rating="5"', ""), encoding="utf-16")
    assert tags_of(path)[0]["rating"] == 5


@pytest.mark.parametrize(("content", "says"), [
    (b'<!DOCTYPE x [<!ENTITY a "aaaa">]>' + LIGHTROOM.encode(), "has a document type"),
    (LIGHTROOM.encode() + b" " * 2**20, "more than 1 MB"),
    (LIGHTROOM.encode()[:-90], "no element found"),
    (b"Rating: 5", "syntax error"),
])  # fmt: skip
def test_xmp_that_cannot_be_read_is_one_line_and_the_rest_counts(tmp_path, content, says):
    path = photograph(tmp_path / "1.jpg", **FULL)
    (tmp_path / "1.xmp").write_bytes(content)
    tags, (line,) = tags_of(path)
    assert line.startswith(f"{tmp_path / '1.xmp'}: its tags (")
    assert says in line
    assert tags["camera"] == "D750"


@pytest.mark.parametrize(
    "said",
    [
        *(
            {"gps": gps}
            for gps in (
                {1: "N", 2: (0, 0, 0), 3: "E", 4: (0, 0, 0)},
                {1: "N", 2: (91, 0, 0), 3: "E", 4: (0, 0, 0)},
                {1: "N", 2: (41, IFDRational(1, 0), 0), 3: "E", 4: (8, 0, 0)},
                {2: (41, 0, 0), 4: (8, 0, 0)},
                {1: "N", 2: (41, 0, 0)},
            )
        ),
        *(
            {"exif": {0x010E: text}}
            for text in ("OLYMPUS DIGITAL CAMERA", "SONY DSC", "DCIM\\100MEDIA\\DJI_0001.JPG", " ")
        ),
        {"exif": {0x4746: 6}, "inner": {0xA434: "----", 0x920A: IFDRational(0, 0)}},
    ],
)
def test_impossible_values_and_captions_that_cameras_write_into_every_file_are_none(tmp_path, said):
    assert tags_of(photograph(tmp_path / "1.jpg", **said)) == ({}, [])


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("Canon", "Canon"),
        ("OLYMPUS IMAGING CORP.", "OLYMPUS"),
        ("Konica Minolta Camera, Inc.", "Konica Minolta"),
        ("CASIO COMPUTER CO.,LTD.", "CASIO"),
        ("LEICA CAMERA AG", "LEICA"),
        ("Camera", "Camera"),
        ("Cobalt", "Cobalt"),
    ],
)
def test_a_make_is_kept_without_what_follows_its_name(tmp_path, written, kept):
    path = photograph(tmp_path / "1.jpg", exif={0x010F: written, 0x0110: "X"})
    assert tags_of(path) == ({"make": kept, "camera": "X"}, [])


AXES = {"Latitude": ("N", "S", 90), "Longitude": ("E", "W", 180)}


def as_xmp(degrees, form, axis):
    """Degrees as XMP has them in a form, and the direction that is written beside them."""
    letter = AXES[axis][degrees < 0]
    size = abs(degrees)
    minutes = size % 1 * 60
    if form == "signed":
        return f"{degrees:.7f}", ""
    if form == "signed beside":
        return f"{degrees:+.7f}", letter
    if form == "letter":
        return f"{size:.7f}{letter}", ""
    if form == "beside":
        return f"{size:.7f}", {"N": "North", "S": "S", "E": "e", "W": "West"}[letter]
    if form == "minutes":
        return f"{int(size)},{minutes:.5f}{letter}", ""
    if form == "minutes beside":
        return f"{int(size)},{minutes:.5f}", letter
    return f"{int(size)},{int(minutes)},{minutes % 1 * 60:.3f}{letter}", ""


@settings(max_examples=60)
@given(
    st.floats(0.1, 89.9) | st.floats(-89.9, -0.1),
    st.floats(0.1, 179.9) | st.floats(-179.9, -0.1),
    st.sampled_from(
        ["signed", "signed beside", "letter", "beside", "minutes", "minutes beside", "seconds"]
    ),
    st.booleans(),
)
def test_positions_of_xmp_are_read_in_every_form(latitude, longitude, form, in_elements):
    said = {}
    for axis, degrees in zip(AXES, (latitude, longitude), strict=True):
        said[f"exif:GPS{axis}"], said[f"exif:GPS{axis}Ref"] = as_xmp(degrees, form, axis)
    attributes = " ".join(f'{name}="{value}"' for name, value in said.items())
    elements = "".join(f"<{name}>{value}</{name}>" for name, value in said.items())
    content = XMP.format(*(("", elements) if in_elements else (attributes, "")))
    with TemporaryDirectory() as folder:
        path = photograph(Path(folder, "1.jpg"), xmp=content.encode())
        tags = tags_of(path)[0]
    assert (tags["lat"], tags["lon"]) == (
        pytest.approx(latitude, abs=2e-6),
        pytest.approx(longitude, abs=2e-6),
    )


@pytest.mark.parametrize("said", [
    'GPSLatitude="41,14" exif:GPSLatitudeRef="N"', 'GPSLatitude="41,1458"', 'GPSLatitude="41,75.5N"',
    'GPSLatitude="41.5E"', 'GPSLatitude="-41.5N"', 'GPSLatitude="-41.5" exif:GPSLatitudeRef="N"',
    'GPSLatitude="91.5"', 'GPSLatitude="4x.5"', 'GPSLatitude="nan"', 'GPSLatitude="41.5" exif:GPSLatitudeRef="?"',
])  # fmt: skip
def test_a_position_that_may_be_another_is_none(tmp_path, said):
    content = XMP.format(f'exif:GPSLongitude="8.5E" exif:{said}', "")
    assert tags_of(photograph(tmp_path / "1.jpg", xmp=content.encode())) == ({}, [])


@pytest.mark.parametrize(("sidecar", "ending", "applies"), [
    ("1.xmp", "NEF", False), ("1.xmp", "jpg", True), ("1.xmp", "JPG", True), ("1.xmp", ".Jpg", True),
    ("1.XMP", "cr2", False), ("1.jpg.xmp", "CR2", True), ("1.xmp", "", True),
])  # fmt: skip
@pytest.mark.parametrize("in_element", [False, True])
def test_a_sidecar_of_another_ending_says_nothing(tmp_path, sidecar, ending, applies, in_element):
    name, space = "photoshop:SidecarForExtension", "http://ns.adobe.com/photoshop/1.0/"
    said = f'xmlns:photoshop="{space}" xmp:Rating="4"'
    content = XMP.format(said, f"<{name}>{ending}</{name}>")
    if not in_element:
        content = XMP.format(f'{said} {name}="{ending}"', "")
    (tmp_path / sidecar).write_text(content, encoding="utf-8")
    path = photograph(tmp_path / "1.jpg", exif={0x4746: 2})
    assert tags_of(path) == ({"rating": 4 if applies else 2}, [])


VALUES = st.one_of(
    st.none(), st.text(), st.binary(), st.integers(), st.floats(), st.lists(st.text() | st.binary())
)


@given(
    st.dictionaries(
        st.sampled_from(["lens", "focal_length", "rating", "title", "labels", "text"]), VALUES
    )
)
@example(
    {
        "title": "a\0b\ud800c",
        "labels": [b"\xff\0", "  "],
        "rating": "1/0",
        "focal_length": "9" * 5000,
    }
)
def test_a_store_takes_whatever_a_file_says(said):
    tags = _check(said)
    assert check_metadata([tags], ["a"]) is not None
    assert all(value not in ("", [], None) for value in tags.values())


@places
def test_thenearest_city_is_that_of_the_haversine_formula():
    vectors, radii, names = load_cities()

    def nearest(*point):
        a, b = np.radians(point)
        c, d = np.arcsin(vectors[:, 2]), np.arctan2(vectors[:, 1], vectors[:, 0])
        half = np.sin((c - a) / 2) ** 2 + np.cos(a) * np.cos(c) * np.sin((d - b) / 2) ** 2
        distances = 2 * 6371.0 * np.arcsin(np.sqrt(half)) - radii
        return names[np.argmin(distances)] if distances.min() <= 50 else {}

    found = {
        point: nearest_city(*point)
        for point in [(52.52, 13.37), (38.7, -9.1), (-17.8, 179.99), (89.9, 0.0)]
    }
    assert found == {point: nearest(*point) for point in found}
    assert [city.get("place") for city in found.values()][:2] == ["Berlin", "Lisbon"]


@pytest.mark.parametrize(("written", "date"), [
    ("2012:03:04 05:06:07", "2012-03-04 05:06:07"),
    ("2012-03-04T05:06:07.25+02:00", "2012-03-04 05:06:07"),
    ("2012/03/04 05.06", "2012-03-04 05:06:00"),
    (b"2012:3:4 5:06:07\0", "2012-03-04 05:06:07"),
    ("2012:03:04 25:61:00", "2012-03-04 00:00:00"),
    ("2012:03:04", "2012-03-04 00:00:00"),
    ("    :  :     :  :  ", None),
    ("2012:13:04 05:06:07", None),
    ("0001:01:01 00:00:00", None),
    (None, None),
])  # fmt: skip
def test_dates_as_cameras_write_them(written, date):
    assert _parse_date(written) == date


@pytest.mark.parametrize("kind", ["jpg", "png", "webp"])
def test_the_first_usable_date_of_a_file_counts(tmp_path, kind):
    original, digitized, changed = (
        getattr(ExifTags.Base, f"DateTime{name}") for name in ("Original", "Digitized", "")
    )
    for inner, exif, year in (
        ({original: "2012:03:04 05:06:07", digitized: "2013:03:04 05:06:07"}, {}, "2012"),
        (
            {original: "0000:00:00 00:00:00", digitized: "2013:03:04 05:06:07"},
            {changed: "2014:01:01 00:00:00"},
            "2013",
        ),
        ({}, {changed: "2014:01:01 00:00:00"}, "2014"),
    ):
        path = photograph(
            tmp_path / f"1.{kind}", exif | {0x010F: "a camera"}, inner, xmp=LIGHTROOM.encode()
        )
        assert tags_of(path)[0]["taken"][:4] == year
    assert (
        tags_of(photograph(tmp_path / f"1.{kind}", xmp=LIGHTROOM.encode()))[0]["taken"]
        == "2019-07-14 10:20:30"
    )


def test_captions_keywords_and_ratings_are_indexed_and_a_new_sidecar_is_noticed(
    tmp_path, model, store, no_encoding
):
    folder, captions = picture_folder(tmp_path / "photos", 3), tmp_path / "c.csv"
    for name in ("p.jpg", "q.jpg"):
        photograph(folder / name, **FULL)
    captions.write_text("image,caption\nq.jpg,blue\n")
    source, sidecar = Source.read(folder, captions=captions), folder / "p.xmp"
    encode_into(store, model, source)
    for item, text in zip(store.get(["p.jpg", "q.jpg"]), ("Praça da Ribeira", "blue"), strict=True):
        assert item.metadata["text"] == text
        np.testing.assert_array_equal(item.codes["text"], model.encode_texts([text])[0])
    assert store.ids("camera = 'D750' AND rating >= 3 AND label = 'Boot'") == ["p.jpg", "q.jpg"]
    with no_encoding():
        sidecar.write_text(XMP.format('xmp:Rating="5" aux:Lens="x" exif:GPSLatitude="1,0N"', ""))
        assert encode_into(store, model, source).unchanged == 5
        assert store.ids("rating = 5 AND lens = 'x'") == ["p.jpg"]
        sidecar.unlink()
        # as versions before this one left it
        store.update(["0.png"], [{"tags_from": None, "date": None}])
        assert encode_into(store, model, source).problems == ()
        assert store.ids("rating = 3 AND lens = '50.0 mm f/1.8'") == ["p.jpg", "q.jpg"]
        assert store.get(["0.png"])[0].metadata["date"]
    sidecar.write_text(LIGHTROOM)
    assert encode_into(store, model, source).replaced == 1
    np.testing.assert_array_equal(
        store.get(["p.jpg"])[0].codes["text"], model.encode_texts(["boats on a river"])[0]
    )
    photograph(folder / "p.jpg")
    sidecar.unlink()
    encode_into(store, model, source)
    assert "lens" not in store.get(["p.jpg"])[0].metadata


@pytest.mark.parametrize("name", ["p.jpg", "moved.jpg"])
def test_tags_that_cannot_be_read_are_reported_once_if_the_caption_is_new(
    tmp_path, model, store, name
):
    folder = picture_folder(tmp_path / "photos", 1)
    path = photograph(folder / "p.jpg", xmp=b"Rating: 5")
    encode_into(store, model, Source.read(folder))
    path = path.rename(folder / name)
    path.with_suffix(".xmp").write_text(LIGHTROOM)
    (line,) = encode_into(store, model, Source.read(folder)).problems
    assert line.startswith(f"{path}: its XMP (")
    assert store.get([name])[0].metadata["text"] == "boats on a river"


def raw_file(path, orientation=1, is_bare=False):
    """Write a DNG file: the mosaic and, unless it is bare, a preview in two colours; with EXIF and
    GPS.
    """
    seen, file = Image.new("RGB", (64, 48), "red"), io.BytesIO()
    seen.paste("blue", (0, 0, 32, 48))
    seen.save(file, "JPEG", quality=95)
    raw = {254: 0, 256: 32, 257: 32, 258: 16, 259: 1, 262: 32803, 277: 1, 278: 32, 279: 2048}
    raw |= {273: 0, 33421: (2, 2), 33422: b"\0\1\1\2"}  # Pillow counts from the directory's end
    shown = {254: 1, 256: 64, 257: 48, 258: (8, 8, 8), 259: 7, 262: 6, 277: 3, 273: 0, 278: 48}
    main = raw if is_bare else shown | {279: file.tell(), 330: raw}
    main |= {271: "Canon", 272: "Canon EOS 5D", 274: orientation, 50706: b"\1\4\0\0"}
    main |= {EXIF: {36867: "2019:07:14 10:20:30", 37386: IFDRational(50, 1), 42036: "EF50mm"}}
    main |= {GPS: FULL["gps"]}
    directory = ImageFileDirectory_v2()
    for tag, value in main.items():
        directory[tag] = value
    preview = b"" if is_bare else file.getvalue()
    path.write_bytes(b"II*\0\x08\0\0\0" + directory.tobytes(8) + preview + bytes(2048))


@places
@pytest.mark.skipif(bool(raw_problem()), reason="needs the extra raw")
def test_raw_photographs_are_seen_by_their_preview_unless_another_picture_shows_them(
    tmp_path, model, store
):
    for name in ("img_1.dng", "IMG_1.JPG.dng", "2.DNG"):
        raw_file(tmp_path / name, orientation=6)
    photograph(tmp_path / "IMG_1.jpg")
    bare = tmp_path / "bare.dng"
    raw_file(bare, is_bare=True)
    done = encode_into(store, model, Source.read(tmp_path, exclude=["store"]))
    assert (store.ids(), done.skipped["raw beside its JPEG"]) == (
        ["2.DNG", "IMG_1.JPG.dng", "IMG_1.jpg"],
        1,
    )
    assert done.problems == (
        f"unreadable picture {bare} (no preview in it; develop it, and keep the JPEG beside it)",
    )
    said = {
        "taken": "2019-07-14 10:20:30",
        "make": "Canon",
        "camera": "EOS 5D",
        "lens": "EF50mm",
        "focal_length": 50.0,
        **IN_PORTO,
    }
    assert tags_of(tmp_path / "2.DNG") == (said, [])
    assert decode(open_image(tmp_path / "2.DNG")).getpixel((4, 4))[2] > 200
    with TestClient(create_app(Service(store, lambda: model))) as client:
        for address in ("originals/2.DNG", "images/2.DNG"):
            assert Image.open(io.BytesIO(client.get(address).content)).size == (48, 64)
        pair = {
            "first": {"text": "blue"},
            "second": {"id": "2.DNG", "modality": "image"},
            "maps": False,
        }
        assert "not there" not in str(client.post("/explain", json=pair).json())
        facets = client.get("/facets").json()
        assert facets["cameras"] == [{"name": "EOS 5D", "count": 2}]
        assert facets["places"] == [{"name": "Porto", "count": 2}]


# Text in drawn pictures is read, once, and found.

SYLLABLES, FONTS, LETTERS = map(
    str.split,
    (
        "bar cac cop fal gra har kem lan lio mea mon nus pep qua rid sol tun vex wal zim",
        "Sans Sans-Bold Sans-Oblique SansMono SansCondensed Serif Serif-Bold",
        "A B C D E F G H J K L M N P R S T U V X Y",
    ),
)


def lines_of(rng, kind):
    """Return the lines in a picture of a kind, the phrase to be found, and the size of its
    letters.
    """
    words = lambda k: " ".join("".join(rng.choices(SYLLABLES, k=3)) for _ in range(k))  # noqa: E731
    pair = lambda: "".join(rng.choices(LETTERS, k=2))  # noqa: E731
    if kind == "plate":
        return (
            [line := f"{pair()} {rng.randrange(100, 1000)} {pair()}"],
            line,
            rng.randrange(30, 60),
        )
    if kind == "receipt":
        lines = [f"{words(2)} {rng.randrange(1000, 10_000) / 100}" for _ in range(16)]
        return lines, rng.choice(lines), rng.randrange(22, 34)
    if kind == "screenshot":
        lines = [f"{words(4)} {pair()}{rng.randrange(1000)} {words(1)}" for _ in range(10)]
        return lines, rng.choice(lines), rng.randrange(20, 28)
    line = f"{words(2)} {rng.randrange(10, 10_000)}".upper()
    return line.split() if kind == "sign" else [line], line, rng.randrange(50, 90)


def draw(path, number):
    """Draw a picture in noise, slightly turned; some stand on their heads but for EXIF. Return the
    phrase in it.
    """
    rng, kind = (
        random.Random(number),
        ("plate", "receipt", "screenshot", "sign", "meme")[number % 5],
    )
    size = wide, high = rng.choice([(1600, 1200), (1200, 1600), (1280, 960)])
    ink, paper = (
        tuple(rng.randrange(low, low + 85) for _ in range(3)) for low in rng.sample((0, 170), 2)
    )
    image = Image.effect_noise((wide // 8, high // 8), 60).resize(size).convert("RGB")
    image = Image.blend(image, Image.new("RGB", size, (60, 50, 70)), 0.6)
    lines, phrase, points = lines_of(rng, kind)
    text, start = "\n".join(lines), (points // 2, points // 2)
    try:
        face = ImageFont.truetype(f"DejaVu{rng.choice(FONTS)}.ttf", points)
    except OSError:  # this machine has no such fonts
        face = ImageFont.load_default(points)
    box = ImageDraw.Draw(image).multiline_textbbox(start, text, face, stroke_width=2)
    block = Image.new(
        "RGBA", [int(side) + points // 2 for side in box[2:]], None if kind == "meme" else paper
    )
    how = (
        {"fill": "white", "stroke_width": 2, "stroke_fill": "black"}
        if kind == "meme"
        else {"fill": ink}
    )
    ImageDraw.Draw(block).multiline_text(start, text, font=face, **how)
    block.thumbnail((0.9 * wide, 0.9 * high))
    block = block.rotate(
        0 if kind == "screenshot" else rng.uniform(-6, 6), Image.Resampling.BICUBIC, expand=True
    )
    image.paste(
        block,
        (rng.randrange(max(1, wide - block.width)), rng.randrange(max(1, high - block.height))),
        block,
    )
    noise = np.random.default_rng(number).normal(0, rng.uniform(0, 14), (high, wide, 1))
    image, exif = (
        Image.fromarray((np.asarray(image) + noise).clip(0, 255).astype(np.uint8)),
        Image.Exif(),
    )
    if rng.random() < 0.25:
        image, exif[ExifTags.Base.Orientation] = image.rotate(180), 3
    image.save(path, quality=rng.randrange(40, 95), exif=exif)
    return phrase


@pytest.mark.slow
def test_phrases_in_200_pictures_are_found_first(tmp_path, model, store):
    phrases = {f"{number}.jpg": draw(tmp_path / f"{number}.jpg", number) for number in range(200)}
    encode_into(store, model, Source.read(tmp_path))
    lost = {
        name: phrase
        for name, phrase in phrases.items()
        if store.search_words(phrase, 1).ids != [name]
    }
    print(f"{200 - len(lost)} of 200 phrases are found first; not: {lost}")
    assert len(lost) <= 10


def test_text_is_read_left_alone_or_looked_for_as_asked_and_what_has_none_stops_nothing(
    tmp_path, monkeypatch
):
    folder, place = tmp_path / "photos", Address.parse(tmp_path / "store")
    folder.mkdir()
    phrase = draw(folder / "0.jpg", 0)
    sign = Image.new("RGB", (400, 100), "white")
    ImageDraw.Draw(sign).text((20, 20), "STOP HARPER", "black", ImageFont.load_default(40))
    sign.rotate(180).save(folder / "head.png")
    for name, size in {"dot": (1, 1), "strip": (9000, 2), "huge": (7000, 5000)}.items():
        Image.new("RGB", size, "white").save(folder / f"{name}.png")
    (folder / "words.jpg").write_text("STOP HARPER")
    small_model(tmp_path)
    done = create_store(
        place, NewCodes(str(tmp_path / "model")), read_again(place, folder, ocr=False)
    )
    assert (done.added, len(done.problems)) == (5, 1)
    for asked, replaced in ((None, 0), (True, 5), (True, 0)):
        done = add_to_store(place, read_again(place, None, ocr=asked))
        assert (done.replaced, done.unchanged) == (replaced, 5 - replaced)
        with ch.open_store(place) as store:
            first = [store.search_words(words, 1).ids for words in (phrase, "harper stop")]
            assert first == ([["0.jpg"], ["head.png"]] if asked else [[], []])
            assert store.get(["dot.png"])[0].metadata.get("ocr") == ("" if asked else None)
    monkeypatch.setitem(sys.modules, "rapidocr", None)
    open_reader.cache_clear()
    check_refusal(r"pip install 'channelhash\[ocr\]'", read_again, place, None, ocr=True)
    assert add_to_store(place, read_again(place, None)).unchanged == 5
