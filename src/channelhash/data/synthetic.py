"""The embedded data set: drawn scenes with hashtags, in MIRFLICKR-25k's layout.

A scene is a place with things in it: both are tables in ``scenes.txt``, and what is drawn decides
the labels. Hashtags are such as people write.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from configparser import ConfigParser, ExtendedInterpolation
from pathlib import Path

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from PIL import Image, ImageColor, ImageDraw

from channelhash.data.flickr import load_mirflickr
from channelhash.data.records import Records
from channelhash.errors import InputError
from channelhash.utils.files import space_for, write_text
from channelhash.utils.locks import locked
from channelhash.utils.progress import Progress, no_progress
from channelhash.utils.seeds import generator

_Color = tuple[int, ...]

# Entries may begin with #.
_PARSER = ConfigParser(interpolation=ExtendedInterpolation(), comment_prefixes=("# ",))
_PARSER.read(Path(__file__).with_name("scenes.txt"), encoding="utf-8")
_TABLES = {name: dict(section) for name, section in _PARSER.items()}
#: Label -> the words that people write for it.
_WORDS = _TABLES["words"]
#: Label -> a label that it implies.
_IMPLIED = _TABLES["implied"]
#: Scenes are drawn so many times as large and reduced, for smooth edges.
_SUPERSAMPLING = 2


def _draw_scene(random: Generator) -> tuple[Image.Image, frozenset[str]]:
    """Draw a scene: an RGB image of 80 … 128 pixels a side, and its labels.

    >>> image, labels = _draw_scene(np.random.default_rng(1))
    >>> image.mode, labels <= _WORDS.keys()
    ('RGB', True)
    """
    width, height = (int(side) for side in random.integers(80, 129, 2))
    places = [place.split("/") for place in _TABLES["places"].values()]
    place = random.choice(len(places), p=[float(weight) for weight, *_ in places])
    _, own_labels, night, bands, things = places[place]
    hour = _draw_hour(float(night), random)
    image = Image.new("RGB", (width * _SUPERSAMPLING, height * _SUPERSAMPLING))
    labels = {*own_labels.split(), *_draw_ground(image, bands.split("|"), hour, random)}
    light = 0.45 if "night" in labels else 1.0
    for line in things.split("|"):
        labels |= _draw_things(image, line.split(), light, random)
    labels |= {_IMPLIED[label] for label in labels & _IMPLIED.keys()}
    return _develop(image.resize((width, height), Image.Resampling.BOX), random), frozenset(labels)


def _draw_hour(night: float, random: Generator) -> str:
    """Draw the hour of a scene, night with this probability."""
    if random.random() < night:
        return "night"
    return "sunset" if random.random() < 0.2 else "day"


def _draw_ground(
    image: Image.Image, bands: Sequence[str], hour: str, random: Generator
) -> set[str]:
    """Fill an image with bands of colours, and return the labels of the sky if there is one."""
    labels = set()
    top = 0.0
    for band in bands:
        *colors, end = band.split()
        bottom = 1.0
        if float(end) < 1:
            bottom = min(1.0, float(end) + random.uniform(-0.06, 0.06))
        if colors == ["sky"]:
            colors = _TABLES["skies"][hour].split()
            labels.add("sky" if hour == "day" else hour)
        _draw_band(image, top, bottom, *(_tint(color, random) for color in colors))
        top = bottom
    return labels


def _draw_things(
    image: Image.Image, line: Sequence[str], light: float, random: Generator
) -> set[str]:
    """Draw the things of a line of the table of places, or none, and return their labels."""
    names, *numbers = line
    probability, most, low, high, least, largest = map(float, numbers)
    labels = set[str]()
    if random.random() >= probability:
        return labels
    for _ in range(random.integers(1, int(most) + 1)):
        name = str(random.choice(names.split(",")))
        thing_labels, _, shapes = _TABLES["things"][name].partition("/")
        x = random.uniform(0.05, 0.95) * image.width
        y = random.uniform(low, high) * image.height
        size = random.uniform(least, largest) * image.width
        _draw_thing(image, shapes, (x, y), size, light, random)
        labels.update(thing_labels.split())
    return labels


def _draw_band(image: Image.Image, top: float, bottom: float, first: _Color, last: _Color) -> None:
    """Fill a band between two heights, from one colour to another."""
    start = round(top * image.height)
    end = max(round(bottom * image.height), round(top * image.height) + 1)
    share = np.linspace(0, 1, end - start)[:, None, None]
    rows = np.array(first) * (1 - share) + np.array(last) * share
    band = np.broadcast_to(rows, (end - start, image.width, 3)).astype(np.uint8)
    image.paste(Image.fromarray(band), (0, start))


def _draw_thing(
    image: Image.Image,
    shapes: str,
    foot: tuple[float, float],
    size: float,
    light: float,
    random: Generator,
) -> None:
    """Draw the shapes of a thing of a size in pixels whose foot is at (x, y)."""
    draw = ImageDraw.Draw(image)
    colors: dict[str, _Color] = {"window": (255, 225, 130) if light < 1 else (95, 125, 155)}
    for style, _, figures in (shape.partition(":") for shape in shapes.split("|")):
        kind, color, *width = style.split()
        if color not in colors:
            colors[color] = _tint(
                str(random.choice(_TABLES["colors"].get(color, color).split())), random, light
            )
        options = {"width": max(1, round(float(width[0]) * size))} if kind == "line" else {}
        for numbers in figures.split(","):
            points = np.array(numbers.split(), dtype=float).reshape(-1, 2) * size + foot
            getattr(draw, kind)(points.ravel().tolist(), fill=colors[color], **options)


def _tint(color: str, random: Generator, light: float = 1.0) -> _Color:
    """Vary a colour a little, in the light of the scene."""
    values = (np.array(ImageColor.getrgb(color)) + random.integers(-28, 29, 3)) * light
    return tuple(np.clip(values, 0, 255).astype(int).tolist())


def _develop(image: Image.Image, random: Generator) -> Image.Image:
    """Add exposure, colour cast and sensor noise; some images become black and white, some are
    mirrored.
    """
    pixels: NDArray[np.float64] = np.asarray(image, dtype=np.float64)
    if random.random() < 0.06:
        pixels = np.repeat(pixels.mean(axis=2, keepdims=True), 3, axis=2)
    pixels = pixels * random.uniform(0.8, 1.15) * random.uniform(0.92, 1.08, 3)
    pixels = pixels + random.uniform(-12, 12)
    pixels = pixels + random.normal(0, random.uniform(1, 9), pixels.shape)
    if random.random() < 0.5:
        pixels = pixels[:, ::-1]
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def _write_hashtags(labels: frozenset[str], random: Generator) -> list[str]:
    """Return 0 … 20 hashtags for an image with these labels; one image in fourteen has none.

    About half of the labels are named. One image in eight has a tag of something that may be
    absent; one in fourteen has many irrelevant tags.

    >>> _write_hashtags(frozenset({"dog", "sea"}), np.random.default_rng(3))
    ['winter', 'puppy', 'dogggy', 'bravo']
    """
    if random.random() < 1 / 14:
        return []
    named = _draw_labels(labels, random)
    tags = [_as_typed(word, random) for word in _draw_words(named, random)]
    irrelevant = random.poisson(1.8 if random.random() < 0.93 else 10)
    tags += [str(tag) for tag in random.choice(_TABLES["tags"]["irrelevant"].split(), irrelevant)]
    if random.random() < 0.08:
        tags.append(f"geo:lat={random.uniform(-60, 60):.4f}")
    unique = list(dict.fromkeys(tags))
    return [unique[i] for i in random.permutation(len(unique))][:20]


def _draw_labels(labels: frozenset[str], random: Generator) -> list[str]:
    """Draw the labels that somebody names, and now and then one of something that may be absent."""
    named = [label for label in sorted(labels) if random.random() < 0.55]
    if random.random() < 0.12:
        named.append(str(random.choice(list(_WORDS))))
    return named


def _draw_words(labels: Sequence[str], random: Generator) -> list[str]:
    """Draw a word for each label, or two words for one in four."""
    words = []
    for label in labels:
        n_words = 1 + (random.random() < 0.25)
        words += [str(random.choice(_WORDS[label].split())) for _ in range(n_words)]
    return words


def _as_typed(word: str, random: Generator) -> str:
    """Change a word as somebody in a hurry would type it."""
    chance = random.random()
    if chance < 0.10:
        return str(random.choice(_TABLES["tags"]["adjectives"].split())) + word
    # Two letters are swapped, or one is left out or doubled, never the first.
    if chance < 0.17 and len(word) > 3:
        i = int(random.integers(1, len(word) - 1))
        start = word[:i]
        end = word[i:]
        slips = [start + end[1] + end[0] + end[2:], start + end[1:], start + end[0] + end]
        return str(random.choice(slips))
    if 0.17 <= chance < 0.25:
        return word.upper() if random.random() < 0.3 else word.capitalize()
    return word


def synthesize(
    root: Path, n_images: int = 3000, seed: int = 0, progress: Progress = no_progress
) -> None:
    """Draw ``n_images`` images with labels and hashtags into ``root``, in the layout of
    MIRFLICKR-25k.

    ``mirflickr/im1.jpg …``, ``mirflickr/meta/tags/tags1.txt …`` (lower-case),
    ``mirflickr/meta/tags_raw/…`` (as typed) and ``annotations/<label>.txt``. Every image is a
    function of (seed, number) alone. An interrupted call is continued, a finished folder is left
    unchanged, and a second process waits for the first.
    """
    if n_images < 1:
        raise InputError(f"images: {n_images} asked for; a data set has at least 1")
    with locked(root.parent / f".{root.name}.lock"):  # not inside: a new folder must be empty
        _draw_all(root, n_images, seed, progress)


def _draw_all(root: Path, n_images: int, seed: int, progress: Progress) -> None:
    marker = root / "synthetic.json"
    # Raise the format when the drawing changes.
    settings = {"format": 2, "n_images": n_images, "seed": seed}
    if _is_finished(root, marker, settings):
        return
    write_text(marker, json.dumps({**settings, "finished": False}))
    images = root / "mirflickr"
    for folder in (images / "meta" / "tags", images / "meta" / "tags_raw", root / "annotations"):
        folder.mkdir(parents=True, exist_ok=True)
    numbers: dict[str, list[int]] = {label: [] for label in _WORDS}
    for number in range(1, n_images + 1):
        image, labels = _draw_scene(generator(seed, "scene", number))
        for label in labels:
            numbers[label].append(number)
        if not (images / f"im{number}.jpg").exists():
            tags = _write_hashtags(labels, generator(seed, "hashtags", number))
            _save_sample(images, number, image, tags)
        progress(number, n_images)
    for label, members in numbers.items():
        write_text(root / "annotations" / f"{label}.txt", _lines(members))
    write_text(marker, json.dumps({**settings, "finished": True}))


def _is_finished(root: Path, marker: Path, settings: Mapping[str, int]) -> bool:
    """Return whether a folder holds the whole data set.

    Raises:
        InputError: it holds something else.
    """
    if not marker.exists():
        if root.exists() and any(root.iterdir()):
            raise InputError(
                f"{root}: is not empty and holds no embedded data set; use another folder"
            )
        return False
    existing = json.loads(marker.read_text(encoding="utf-8"))
    if existing != existing | settings:
        raise InputError(
            f"{root}: holds an embedded data set made with {existing}; use another folder"
        )
    return bool(existing["finished"])


def _save_sample(images: Path, number: int, image: Image.Image, tags: Sequence[str]) -> None:
    """Write an image and its tags; the image last, so that it exists only if the sample is
    complete.
    """
    typed = _lines(tags)
    # without atomic_path: 25,000 files are not flushed one by one
    temporary = images / f"im{number}.tmp"
    with space_for(images):
        for kind, text in (("tags_raw", typed), ("tags", typed.lower())):
            path = images / "meta" / kind / f"tags{number}.txt"
            path.write_text(text, encoding="utf-8", newline="\n")
        image.save(temporary, "JPEG", quality=90)
    temporary.replace(images / f"im{number}.jpg")


def _lines(values: Iterable[object]) -> str:
    return "".join(f"{value}\n" for value in values)


def load_synthetic(
    root: Path = Path("data/synthetic"),
    n_images: int = 3000,
    data_seed: int = 0,
    raw_tags: bool = True,
    progress: Progress = no_progress,
) -> Records:
    """Load the embedded data set, after drawing it into ``root`` if necessary.

    The threshold of MIRFLICKR's tag filter is scaled to the number of images: a tag is frequent if
    it occurs in 20 / 25,000 of them, at least in 2.

    Args:
        root: folder of the set.
        n_images: number of images.
        data_seed: of all draws.
        raw_tags: hashtags as typed, with their casings, rather than lower-case.
        progress: called with (images drawn, n_images).

    Raises:
        InputError: ``root`` holds a set with other settings, or something else.
    """
    synthesize(root, n_images, data_seed, progress)
    return load_mirflickr(
        root, min_tag_count=max(2, round(n_images * 20 / 25000)), raw_tags=raw_tags
    )
