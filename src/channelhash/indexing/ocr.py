"""Read the text in images with the networks of the package `rapidocr`.

Lines are found in a small copy of an image; for a photograph without text, this is all. Each line
is then cut out of a larger copy and read, and uncertain readings are dropped. A long image, such as
a scrolled screenshot, is read part by part.
"""

from collections.abc import Sequence
from functools import cache
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from channelhash.utils.image_files import decode, open_image
from channelhash.utils.optional_imports import library, naming_extra, onnx_runtime, package_file

#: A BGR image ``(height, width, 3)``.
_Pixels = NDArray[np.uint8]
#: The four corners ``(4, 2)`` of a line in an image, as x and y.
_Corners = NDArray[np.float32]

#: Side to which an image may be reduced when it is decoded.
_TEXT_SIDE = 853
#: Long side in pixels of the copy in which lines are found. Smaller images are enlarged, at most to
#: twice their side.
_LOOK = 640
#: Long side in pixels of the copy out of which lines are cut.
_READ = 1280
#: Length of an image, as a multiple of its width, above which it is read part by part. Screens of
#: telephones are shorter.
_LONG = 2.5
#: Length of such a part, as a multiple of its width.
_PART = 2
#: One part in so many is shared with the next one, so that no line across is cut in both.
_SHARED = 8
#: The most parts of an image that are read: a part full of text takes 2 s.
_MOST_PARTS = 50
#: Length of a line, as a multiple of its height, that is read at once. Far longer ones come out
#: garbled.
_LONGEST = 20
#: Pixels of the smallest short side that has room for a line.
_LOWEST = 16
#: Least confidence in a line with two letters or digits. Of 200 photographs without text, one got
#: some.
_SURE = 0.6
#: Confidence below which a line of a long image is also read upside down. Of 60 lines, none had
#: less when upright, and none more than 0.85 when upside down. The network for that mistook 9.
_DOUBT = 0.9
#: Networks that find lines, turn them and read them, with their SHA-256.
_TEXT_MODELS = {
    "Det": (
        "PP-OCRv6_det_small",
        "090f04abcd9d9a7498bc4ebf677e4cb9bdce1fe4197ddb7e529f1ef44e1ff94f",
    ),
    "Cls": (
        "ch_ppocr_mobile_v2.0_cls_mobile",
        "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c",
    ),
    "Rec": (
        "PP-OCRv6_rec_small",
        "6f327246b50388f3c176ae304bd95767ea6dc0c9ae92153ef8cbe210b3c14884",
    ),
}


def read_text(path: Path) -> tuple[str, list[str]]:
    """Return the lines of text in an image, including those upside down, and a message if the image
    has more than 50 parts, of which only 50 are read.

    The image is decoded again: a model needs fewer pixels, and codes must not depend on this.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "white.png")
    ...     Image.new("RGB", (64, 48), "white").save(path)
    ...     read_text(path)
    ('', [])
    """
    with open_image(path) as opened:
        image = decode(opened, _TEXT_SIDE)
    short, long = sorted(image.size)
    part = min(long, max(_PART * short, _LOOK)) if is_long(image.width, image.height) else long
    scale = min(_READ, max(part, min(2 * part, _LOOK))) / part
    width, height = (round(scale * side) for side in image.size)
    if min(width, height) < _LOWEST:
        return "", []
    resized = image.resize((width, height), Image.Resampling.BILINEAR, reducing_gap=2)
    # OpenCV orders colours as blue, green, red.
    pixels = np.ascontiguousarray(np.asarray(resized)[:, :, ::-1])
    problems = list[str]()
    if part == long:
        lines = open_reader()(pixels).txts or ()
    else:
        size = round(scale * part)
        places = range(0, max(width, height) - size // _SHARED, size - size // _SHARED)
        if len(places) > _MOST_PARTS:
            end = round((places[_MOST_PARTS - 1] + size) / scale)
            problems.append(f"{path}: the text in it beyond its first {end:,} pixels")
        lines = _read_parts(pixels, places[:_MOST_PARTS], size)
    return "\n".join(line for line in lines if sum(map(str.isalnum, line)) > 1), problems


def is_long(width: int, height: int) -> bool:
    """Return whether an image of a size is read part by part.

    >>> is_long(1080, 2400), is_long(1080, 4800)
    (False, True)
    """
    return max(width, height) > _LONG * min(width, height)


def _read_parts(pixels: _Pixels, places: Sequence[int], size: int) -> Sequence[str]:
    """Return the lines of text in a long image, whose parts of one size begin at ``places``."""
    reader = open_reader()
    found = _find_lines(pixels, places, size)
    if not found:
        return ()
    ordered = reader.text_det.sorted_boxes(np.stack(found))
    lines = [_break_line(_cut_line(pixels, corners)) for corners in ordered]
    read = _read_lines(lines)
    doubtful = [row for row, (_, sure) in enumerate(read) if sure < _DOUBT]
    turned = [_turn(lines[row]) for row in doubtful]
    for row, other in zip(doubtful, _read_lines(turned), strict=True):
        read[row] = max(read[row], other, key=itemgetter(1))
    return [text for text, _ in read]


def _turn(line: Sequence[_Pixels]) -> list[_Pixels]:
    """Turn a line, given in pieces, by 180 degrees."""
    return [piece[::-1, ::-1] for piece in reversed(line)]


def _read_lines(lines: Sequence[Sequence[_Pixels]]) -> list[tuple[str, float]]:
    """Return the text of each line, given in pieces, and the confidence in it."""
    pieces = list(map(np.ascontiguousarray, chain.from_iterable(lines)))
    if not pieces:
        return []
    read = open_reader().recognize_txt(pieces)
    words = zip(read.txts, read.scores, strict=True)
    texts = []
    for line in lines:
        said = list(islice(words, len(line)))
        text = " ".join(word for word, sure in said if sure >= _SURE)
        texts.append((text, sum(float(sure) for _, sure in said) / len(said)))
    return texts


def _find_lines(pixels: _Pixels, places: Sequence[int], size: int) -> list[_Corners]:
    """Return the lines in a long image. A line that is found in two parts is joined to one if both
    agree in the shared pixels.
    """
    height, width, _ = pixels.shape
    lines = list[_Corners]()
    last = list[_Corners]()
    for place in places:
        end = place + size // _SHARED
        if height > width:
            part = pixels[place : place + size]
            shared = _rectangle(0, place, width, end)
        else:
            part = pixels[:, place : place + size]
            shared = _rectangle(place, 0, end, height)
        latest = list[_Corners]()
        for corners in _look(part):
            line = corners + shared[0]
            same = [each for each in (*last, *latest) if _is_same(each, line, shared)]
            last = _without(last, same)
            latest = [*_without(latest, same), _around([*same, line]) if same else line]
        lines += last
        last = latest
    return lines + last


def _rectangle(left: int, top: int, right: int, bottom: int) -> _Corners:
    return np.array([(left, top), (right, top), (right, bottom), (left, bottom)], np.float32)


def _look(part: _Pixels) -> _Corners:
    """Return the corners ``(n, 4, 2)`` of the lines in a part of an image."""
    padding = dict[str, Any]()
    try:
        _, found = open_reader().detect_and_crop(np.ascontiguousarray(part), padding)
    except library("rapidocr.main", "ocr").RapidOCRError:  # there are none
        return np.empty((0, 4, 2), np.float32)
    above = np.array([0, padding["padding_1"]["top"]])
    lines: _Corners = (found.boxes - above).clip(0, (part.shape[1], part.shape[0]))
    return lines.astype(np.float32)


def _is_same(first: _Corners, second: _Corners, shared: _Corners) -> bool:
    """Return whether two lines mostly coincide within the pixels that two parts share."""
    area = library("cv2", "ocr").intersectConvexConvex
    common = area(first, second)[0]
    return bool(common > min(area(each, shared)[0] for each in (first, second)) / 2)


def _without(lines: Sequence[_Corners], others: Sequence[_Corners]) -> list[_Corners]:
    left_out = set(map(id, others))
    return [line for line in lines if id(line) not in left_out]


def _around(lines: Sequence[_Corners]) -> _Corners:
    """Return the corners of the smallest rectangle around some lines, in the usual order."""
    boxes = library("rapidocr.ch_ppocr_det.utils", "ocr").DBPostProcess()
    box, _ = boxes.get_mini_boxes(np.concatenate(lines))
    return np.asarray(box, np.float32)


def _cut_line(pixels: _Pixels, corners: _Corners) -> _Pixels:
    """Cut a line out, and turn it upright. The window avoids OpenCV's limit of 32,768 pixels."""
    left, top = (max(0, int(least) - 2) for least in corners.min(axis=0))
    right, bottom = (int(most) + 3 for most in corners.max(axis=0))
    window = np.ascontiguousarray(pixels[top:bottom, left:right])
    place = np.array([left, top], np.float32)
    cut: list[_Pixels] = open_reader().crop_text_regions(window, (corners - place)[None])
    return cut[0]


def _break_line(line: _Pixels) -> list[_Pixels]:
    """Break a line that is too long to be read at once, where its contrast is lowest."""
    pieces = list[_Pixels]()
    height = line.shape[0]
    while line.shape[1] > _LONGEST * height:
        start = _LONGEST * height // 2
        contrast = np.ptp(line[:, start : 2 * start].max(axis=2), axis=0)
        gap = np.convolve(contrast, np.ones(max(1, height // 8)), "same")
        end = start + int(gap.argmin())
        pieces.append(line[:, :end])
        line = line[:, end:]
    return [*pieces, line]


@cache
def open_reader() -> Any:
    """Open the networks. They use one thread an image, so that a fork loses none of their threads.

    >>> open_reader() is open_reader()
    True
    """
    with naming_extra("photos"):
        onnx_runtime()
    engine = library("rapidocr", "ocr").RapidOCR
    files = {
        f"{part}.model_path": str(package_file("rapidocr", f"models/{name}.onnx", sha256, "ocr"))
        for part, (name, sha256) in _TEXT_MODELS.items()
    }
    one_thread = {
        f"EngineConfig.onnxruntime.{kind}_op_num_threads": 1 for kind in ("intra", "inter")
    }
    settings = {
        "Global.log_level": "critical",
        "Global.use_preprocess_img": False,
        "Global.text_score": _SURE,
    }
    # Dilation would join lines that are close together.
    looking = {"Det.limit_type": "max", "Det.limit_side_len": _LOOK, "Det.use_dilation": False}
    return engine(params={**files, **one_thread, **settings, **looking})
