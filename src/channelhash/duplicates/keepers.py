"""Which one of several copies is the original, and which others can go because that is sure.

Only what can be read or measured counts: what the camera wrote, names, ratings, and how the copies
differ from each other. Where two facts contradict each other, or none tells two copies apart, it is
not known which one is the original, and both stay.
"""

import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.copies.comparison import turns_of
from channelhash.copies.detail import read_now
from channelhash.copies.moved import alike
from channelhash.copies.small_copies import SmallCopy
from channelhash.search.browsing import date_of
from channelhash.search.store import Item, Listed
from channelhash.utils.image_files import decode, open_image, upright_size

#: Names that programs and people give to copies, in small letters.
_COPY_NAME = re.compile(
    r"^screenshot|^img_e\d{4}$|-wa\d{4}$|~\d*$|(^|[-_ .(])(copy|kopie|copie|copia|edit(ed)?"
    r"|bearbeitet|mirrored|flipped|rotated|turned|gespiegelt|gedreht)([-_ ]?\d+)?\)?$"
)
#: The end of the name of a file that was put where another one had its name.
_NUMBERED = re.compile(r"\(\d+\)$")
#: What separates the parts of a name.
_SEPARATOR = re.compile(r"[^0-9a-z]+")
#: Most levels by which red, green and blue differ in a cell of a grey image.
_GREY = 3
#: Levels from which a cell has a colour. Images of several colours have cells with more red than
#: green or blue and others with less; toned ones, such as in sepia, have not.
_COLOURED = 8
#: Most levels by which cells of two images of one look differ, as compression changes some.
_LOOK = 6
#: Part of the sharpness from which two images of one look are as sharp.
_AS_SHARP = 0.8
#: How many times as many bytes count: a file that is only a little larger was compressed likewise.
_LARGER = 1.1
#: How many times as many pixels count among images of two shapes: borders and strips add some.
_MANY = 2
#: Long side in pixels of the image in which a border is looked for: one of 1 % has several rows.
_BORDER_SIDE = 1024
#: Levels by which rows of a border differ from its edge on average, as compression adds noise.
_BORDER_NOISE = 8
#: Part of its sides by which the image in a border may miss the shape of another one.
_BORDER_ERROR = 0.015
#: Images whose borders are in memory: two numbers each.
_CACHED = 1 << 12


def path_of(item: Item | Listed) -> str:
    """Return the path of an item's image; empty if it has none."""
    return str(item.metadata.get("image") or "")


class Photo(NamedTuple):
    """What tells an original from its copies.

    Attributes:
        id: of the item.
        path: of its file.
        width: in pixels, 0 if unknown.
        height: in pixels, 0 if unknown.
        size: of the file in bytes.
        date: when it was taken, or its file was changed.
        taken: whether the date is the camera's.
        camera: whether the camera is known.
        turned: whether it is mirrored or turned against more than twice as many: of those with the
            camera's data, or of all if none has them.
        colours: 1 if it has several, -1 if it is grey, else 0.
        derived: whether its name is that of a copy, or another one's with a word.
        described: how many of rating, title and keywords people gave it.
        copy: the small one; None if there is no image to read.

    >>> Photo("a.jpg", size=90_000).taken
    False
    """

    id: str
    path: str = ""
    width: int = 0
    height: int = 0
    size: int = 0
    date: str = ""
    taken: bool = False
    camera: bool = False
    turned: bool = False
    colours: int = 0
    derived: bool = False
    described: int = 0
    copy: SmallCopy | None = None

    @property
    def facts(self) -> str:
        """Size, date and bytes in one line."""
        pixels = f"{self.width} × {self.height}" if self.width else ""
        size = f"{self.size / 1e6:.1f} MB" if self.size >= 1e6 else f"{self.size / 1e3:.0f} kB"
        return ", ".join(filter(None, [pixels, self.date[:10], size if self.size else ""]))

    def as_dict(self) -> dict[str, Any]:
        """Return attribute -> value, without the small copy."""
        values = self._asdict()
        del values["copy"]
        return values


class _Fact(NamedTuple):
    """What tells an original from a copy.

    Attributes:
        reason: what to tell.
        compare: more than 0 if the first of two photos is rather the original, less than 0 if the
            second is.
    """

    reason: str
    compare: Callable[[Photo, Photo], int]


def _compare_borders(one: Photo, other: Photo) -> int:
    return _has_border(other, one) - _has_border(one, other)


def _has_border(photo: Photo, other: Photo) -> bool:
    """Return whether a photo is of another shape than another one, but not without its border."""
    if not photo.path or _fits((photo.width, photo.height), other):
        return False
    inner = read_now(_read_inner, photo.path)
    return bool(inner) and _fits(inner or (), other, _BORDER_ERROR)


@lru_cache(_CACHED)
def _read_inner(path: str, _changed: str) -> tuple[int, ...]:
    """Return the sides of an image without the rows of one colour at its edges; none if it has no
    such rows.
    """
    with open_image(path) as opened:
        image = decode(opened, _BORDER_SIDE)
    image.thumbnail((_BORDER_SIDE, _BORDER_SIDE))
    pixels = np.asarray(image, dtype=np.float32)
    inner = (_count_inner(pixels.swapaxes(0, 1)), _count_inner(pixels))
    return () if inner == image.size else inner


def _count_inner(rows: NDArray[np.float32]) -> int:
    """Return the number of rows without those of one colour at both ends."""
    inner = len(rows)
    for ordered in (rows, rows[::-1]):
        differences = np.abs(ordered - np.median(ordered[0], axis=0)).mean(axis=(1, 2))
        inner -= int((differences > _BORDER_NOISE).argmax())
    return max(inner, 0)


def _fits(sides: Sequence[int], photo: Photo, error: float = 0.0) -> bool:
    """Return whether an image of these sides may be a photo that was resized, perhaps turned."""
    short, long = sorted(sides)
    other_short, other_long = sorted((photo.width, photo.height))
    rounding = 2 + error * min(long, other_long)
    return abs(short * other_long - other_short * long) <= rounding * max(long, other_long)


def _compare_pixels(one: Photo, other: Photo) -> int:
    times = 1 if _fits((one.width, one.height), other) else _MANY
    return _compare_numbers(one.width * one.height, other.width * other.height, times)


def _compare_numbers(one: int, other: int, times: float) -> int:
    """Return 1 if the first number is more than so many times the other, -1 the other way round."""
    return (one > times * other) - (other > times * one)


def _compare_days(one: Photo, other: Photo) -> int:
    if not one.taken or not other.taken:
        return 0
    return (one.date[:10] < other.date[:10]) - (one.date[:10] > other.date[:10])


#: The first in which photos differ decides which one is proposed. That is sure if no other one
#: contradicts.
_FACTS = (
    _Fact(
        "has the camera's data",
        lambda one, other: one.camera + one.taken - other.camera - other.taken,
    ),
    _Fact("upright", lambda one, other: other.turned - one.turned),
    _Fact("without border", _compare_borders),
    _Fact("in colour", lambda one, other: int((one.colours - other.colours) / 2)),
    _Fact("most pixels", _compare_pixels),
    _Fact("oldest", _compare_days),
    _Fact("name of an original", lambda one, other: other.derived - one.derived),
    _Fact("has rating, title or keywords", lambda one, other: one.described - other.described),
)
#: What decides between photos of one look, where all that is lost is compression.
_OF_ONE_LOOK = (
    _Fact("largest file", lambda one, other: _compare_numbers(one.size, other.size, _LARGER)),
    _Fact("name without number", lambda one, other: _is_numbered(other) - _is_numbered(one)),
)


def _is_numbered(photo: Photo) -> bool:
    return bool(_NUMBERED.search(_stem(photo.id)))


def find_keeper(photos: Sequence[Photo]) -> Photo:
    """Return the photo that is rather the original than the others.

    >>> find_keeper([Photo("a", taken=True), Photo("b", taken=True, camera=True)]).id
    'b'
    """
    keeper = photos[0]
    for photo in photos:
        differences = (fact.compare(photo, keeper) for fact in _FACTS + _OF_ONE_LOOK)
        if next(filter(None, differences), 0) > 0:
            keeper = photo
    return keeper


def judge(keeper: Photo, others: Sequence[Photo]) -> tuple[str, list[str]]:
    """Return why a photo is the original, and the ids of the others that stay, too: those that may
    be the original, and those that are no copies of it but of another one.

    >>> edited = Photo("a edited", derived=True)
    >>> judge(Photo("a", camera=True), [edited, Photo("b", described=1)])
    ("has the camera's data, name of an original", ['b'])
    """
    reasons = list[str]()
    unsure = list[str]()
    for other in others:
        found = _find_reasons(_FACTS, keeper, other)
        if not found and _have_one_look(keeper, other):
            found = _find_reasons(_OF_ONE_LOOK, keeper, other)[:1] or ["all are equal"]
        reasons += found
        if not found or _find_reasons(_FACTS, other, keeper) or _differ(keeper, other):
            unsure.append(other.id)
    return ", ".join(dict.fromkeys(reasons)) or "unsure", unsure


def _find_reasons(facts: Sequence[_Fact], one: Photo, other: Photo) -> list[str]:
    """Return why one photo is rather the original than another one."""
    return [fact.reason for fact in facts if fact.compare(one, other) > 0]


def _have_one_look(one: Photo, other: Photo) -> bool:
    """Return whether two photos differ in compression alone, and are not two shots of one scene."""
    if one.copy is None or other.copy is None:
        return False
    levels = np.abs(one.copy.colour.astype(np.int16) - other.copy.colour).max()
    less, more = sorted((one.copy.sharpness, other.copy.sharpness))
    is_one_shot = not (one.taken and other.taken) or one.date == other.date
    return is_one_shot and bool(levels <= _LOOK) and less >= _AS_SHARP * more


def _differ(one: Photo, other: Photo) -> bool:
    """Return whether two images that can be read are no copies of each other."""
    if one.copy is None or other.copy is None:
        return False
    return not alike([one.copy], [other.copy])[0, 0]


def describe_copies(items: Sequence[Item], copies: Sequence[SmallCopy | None]) -> list[Photo]:
    """Return what is known of the copies in a group, by themselves and against each other."""
    stems = {_stem(item.id) for item in items}
    photos = [_describe(item, copy, stems) for item, copy in zip(items, copies, strict=True)]
    if None in copies:
        return photos
    return _find_turned(photos, turns_of([copy for copy in copies if copy is not None]))


def _find_turned(photos: Sequence[Photo], turns: Sequence[int]) -> list[Photo]:
    """Return photos with whether they are turned."""
    turned = list(zip(photos, turns, strict=True))
    votes = Counter(turn for photo, turn in turned if photo.taken or photo.camera) or Counter(turns)
    most = max(votes.values())
    return [photo._replace(turned=most > 2 * votes[turn]) for photo, turn in turned]


def _stem(name: str) -> str:
    return Path(name).stem.lower()


def _is_derived(stem: str, stems: set[str]) -> bool:
    """Return whether a name is that of a copy, or another one's with a word before or behind it.

    >>> stems = {"img_1"}
    >>> [_is_derived(stem, stems) for stem in ("img_1 (edited)", "copy of img_1", "img_1_2")]
    [True, True, False]
    """
    if _COPY_NAME.search(stem):
        return True
    for separator in _SEPARATOR.finditer(stem):
        parts = (stem[: separator.start()], stem[separator.end() :])
        for part, rest in (parts, parts[::-1]):
            if part in stems and any(map(str.isalpha, rest)):
                return True
    return False


def _describe(item: Item, copy: SmallCopy | None, stems: set[str]) -> Photo:
    """Return what is known of an image and its file, which may be gone; see `_is_derived`."""
    metadata = item.metadata
    path = path_of(item)
    size = 0
    width = metadata.get("width")
    height = metadata.get("height")
    with suppress(OSError):
        size = os.stat(path).st_size
        if not isinstance(width, int) or not isinstance(height, int):
            with open_image(path) as opened:
                width, height = upright_size(opened)
    rating = metadata.get("rating")
    is_rated = isinstance(rating, int) and rating > 0  # 0 is no rating, -1 a rejected image
    return Photo(
        item.id,
        path,
        width if isinstance(width, int) else 0,
        height if isinstance(height, int) else 0,
        size,
        date_of(metadata),
        bool(metadata.get("taken")),
        bool(metadata.get("camera")),
        colours=_count_colours(copy) if copy else 0,
        derived=_is_derived(_stem(item.id), stems),
        described=is_rated + bool(metadata.get("title")) + bool(metadata.get("labels")),
        copy=copy,
    )


def _count_colours(copy: SmallCopy) -> int:
    """Return 1 for an image of several colours, -1 for a grey one, else 0."""
    levels = copy.colour.astype(np.int16)
    differences = levels[..., :2] - levels[..., 1:]
    if np.abs(differences).max() <= _GREY:
        return -1
    is_several = (differences.max(axis=(0, 1)) >= _COLOURED) & (
        differences.min(axis=(0, 1)) <= -_COLOURED
    )
    return int(is_several.any())
