"""The embedded data set: drawn scenes with hashtags, in MIRFLICKR-25k's layout.

A scene is a place with things in it: both are tables here, and what is drawn decides the labels. Hashtags are such as
people write.
"""

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageColor, ImageDraw

from channelhash.data.mirflickr import load_mirflickr
from channelhash.data.records import Records
from channelhash.errors import InputError
from channelhash.utils.files import locked, space_for, write_text
from channelhash.utils.progress import Progress, no_progress
from channelhash.utils.seeds import generator

_Color = tuple[int, ...]


def _table(text: str) -> dict[str, str]:
    """Return name -> entry of the entries ``name = entry``, with semicolons between them."""
    entries = (entry.partition("=") for entry in " ".join(text.split()).split(";"))
    return {name.strip(): entry.strip() for name, _, entry in entries}


#: The 24 potential labels of MIRFLICKR-25k -> words that people use for them; some words belong to several labels.
_WORDS = _table("""
animals = animal animals pet cute wildlife; baby = baby newborn infant child;
bird = bird birds seagull feathers wings; car = car cars auto vehicle driving; clouds = clouds cloud cloudy cumulus;
dog = dog puppy doggy canine hound; female = girl woman lady female dress;
flower = flower flowers blossom bloom petals; food = food dinner lunch delicious cooking yummy;
indoor = home room indoors interior house; lake = lake pond lakeside reflection; male = man boy guy male dude;
night = night nighttime dark lights evening; people = people friends person crowd;
plant_life = green nature plants garden grass; portrait = portrait face selfportrait eyes headshot;
river = river stream riverbank creek; sea = sea ocean beach waves coast; sky = sky blue skies heaven;
structures = building architecture city urban street; sunset = sunset dusk sundown goldenhour orange;
transport = transport traffic travel ride; tree = tree trees forest woods leaves; water = water wet reflection blue
""")

_ADJECTIVES = ("beautiful", "big", "blue", "red", "my", "old", "little", "amazing", "sunny", "green")
_IRRELEVANT_TAGS = """
nikon canon 2007 2008 photo explore interestingness d80 macro hdr bw london usa flickr art love color light summer
winter me fun bravo topf25 geotagged instadaily abigfave closeup photography eos italy spring 50mm film
"""

#: label -> the label that follows from it.
_IMPLIED = _table("""
sea = water; lake = water; river = water; sunset = sky; clouds = sky; dog = animals; bird = animals; tree = plant_life;
flower = plant_life; female = people; male = people; baby = people; portrait = people; car = transport
""")

#: Colours by name; one of them is drawn for a thing. The others that shapes name are fixed.
_COLORS = _table("""
skin = #f0cdaf #e1af8c #aa7350 #6e4b37; hair = #3c2819 #191414 #cda555 #964623;
fur = #966437 #463228 #e1cdaa #5f5f5f #d78c3c; leaf = #2d732d #3c8232 #285f28 #be6e28;
petal = #e12d3c #fac828 #cd5ac8 #faf5f5 #f078aa; wall = #a5785f #96969e #cdbea5 #825f5a #6e7d96;
paint = #c82328 #284bb9 #f0c832 #e1e1e4 #232328 #328246; feather = #3c78c8 #be3c32 #f0f0f0 #6e553c;
cloth = #c8323c #325ab4 #f0e6dc #3c965a #e6aa32 #8c3c96; bite = #c83c28 #5a9632 #e6b446 #8c5028 #dc6e3c;
any = #c8323c #325ab4 #f0e6dc #3c965a #e6aa32 #8c3c96 #808080
""")

_FACE = """ellipse skin: -.42 -1.52 .42 -.48|ellipse #fafafa: -.24 -1.15 -.08 -1.05, .08 -1.15 .24 -1.05
  |ellipse #282d3c: -.2 -1.14 -.12 -1.06, .12 -1.14 .2 -1.06|ellipse #be4650: -.13 -.785 .13 -.695"""
_LIMBS = "line skin .05: -.1 -.73 -.19 -.48, .1 -.73 .19 -.48|ellipse skin: -.08 -.98 .08 -.78"
_WINDOWS = ", ".join(f"{x} {y / 10} {x + 0.2:.1f} {y / 10 + 0.2:.1f}" for y in range(-18, 0, 4) for x in (-0.4, 0.1))
#: The labels of a thing, and its shapes, each a kind, a colour and, after the colon, points in shares of the thing's
#: size, upwards negative. Shapes of one kind and colour share these, with commas between their points. The points are
#: the corners of a polygon; the left top and the right bottom corner of a rectangle, or of that around an ellipse; or
#: those of a line, whose width follows its colour.
_THINGS = _table(f"""
tree = tree / rectangle #5f4128: -.07 -.5 .07 0|ellipse leaf: -.36 -.79 .04 -.41, -.05 -.84 .35 -.46, -.2 -.99 .2 -.61;
fir = tree / rectangle #5f4128: -.05 -.3 .05 0|polygon leaf: -.3 -.2 0 -.65 .3 -.2, -.23 -.4 0 -.85 .23 -.4, -.16 -.6 0
  -1 .16 -.6;
flower = flower / line #32782d .15: 0 2.5 0 0|ellipse petal: .25 -.45 1.15 .45, -1.15 -.45 -.25 .45, -.1 .15 .8 1.05,
  -.8 .15 .1 1.05, -.1 -1.05 .8 -.15, -.8 -1.05 .1 -.15|ellipse #f5be32: -.4 -.4 .4 .4;
tower = structures / rectangle wall: -.5 -2 .5 0|rectangle window: {_WINDOWS};
house = structures / rectangle wall: -.5 -.8 .5 0|polygon #963c2d: -.6 -.8 0 -1.2 .6 -.8|rectangle window: -.37 -.6
  -.12 -.3, .12 -.6 .37 -.3;
car = car / polygon paint: -.28 -.2 -.17 -.4 .17 -.4 .3 -.2|rectangle paint: -.5 -.22 .5 -.02|rectangle window: -.16
  -.36 -.01 -.22, .02 -.36 .17 -.22|ellipse #191919: -.39 -.11 -.17 .11, .17 -.11 .39 .11|ellipse #969696: -.33 -.05
  -.23 .05, .23 -.05 .33 .05;
bus = transport / rectangle #d2322d: -.5 -.55 .5 0|rectangle window: -.45 -.47 -.2 -.28, -.15 -.47 .1 -.28, .15 -.47 .4
  -.28|ellipse #191919: -.39 -.09 -.21 .09, .21 -.09 .39 .09;
boat = transport / polygon #8c4632: -1 -.3 1 -.3 .6 0 -.6 0|polygon #f5f5f0: 0 -2 0 -.4 .9 -.4;
bird = bird / polygon feather: -1 .1 -2 .7 -.7 .6|ellipse feather: -1.2 -.75 1.2 .75, .6 -1.1 1.6 -.1|polygon #f0a01e:
  1.5 -.7 2.1 -.55 1.5 -.35|ellipse #0f0f0f: 1.1 -.8 1.3 -.6;
flock = bird / line #28282d .4: -1 -.5 0 0 1 -.5, 2 -1.5 3 -1 4 -1.5, -4 -2 -3 -1.5 -2 -2;
dog = dog / rectangle fur: -.46 -.4 -.34 0, .28 -.4 .4 0|line fur .09: -.45 -.55 -.72 -.9|ellipse fur: -.52 -.73 .52
  -.27, .28 -1.04 .76 -.6, .58 -.86 .86 -.66|ellipse #503c28: .32 -1 .48 -.6|ellipse #141414: .785 -.835 .875
  -.745|ellipse #0f0f0f: .545 -.935 .615 -.865;
cat = animals / line fur .09: .25 -.1 .6 -.5|ellipse fur: -.3 -.64 .3 .04, -.24 -1.02 .24 -.58|polygon fur: -.23 -.85
  -.2 -1.18 0 -.98, .23 -.85 .2 -1.18 0 -.98|ellipse #78c85a: -.145 -.875 -.055 -.785, .055 -.875 .145 -.785;
woman = female / ellipse hair: -.11 -1.03 .11 -.71|rectangle skin: -.09 -.3 -.02 0, .02 -.3 .09 0|polygon cloth: 0 -.8
  -.2 -.22 .2 -.22|{_LIMBS};
man = male / ellipse hair: -.09 -1.02 .09 -.84|rectangle #323750: -.1 -.44 -.02 0, .02 -.44 .1 0|rectangle cloth: -.11
  -.78 .11 -.42|{_LIMBS};
woman-face = portrait female / ellipse cloth: -.75 -.5 .75 .5|ellipse hair: -.58 -1.65 .58 -.15|{_FACE};
man-face = portrait male / ellipse cloth: -.75 -.5 .75 .5|ellipse hair: -.47 -1.62 .47 -.72|{_FACE};
baby-face = portrait baby / ellipse cloth: -.5 -.4 .5 .4|{_FACE}|ellipse #afd7f5: -.26 -1.63 .26 -1.27;
window = / rectangle #f5f5f5: -.5 -1 .5 0|rectangle #96c3eb: -.44 -.94 .44 -.06;
sofa = / rectangle cloth: -.5 -.4 .5 0, -.6 -.25 -.45 .05, .45 -.25 .6 .05;
river = river / polygon #4682aa: -.03 -1 .03 -1 .2 -.5 .45 0 -.3 0 -.1 -.5;
hills = / polygon #5f6e78: -1 0 -.6 -.2 -.3 -.06 0 -.17 .4 -.05 .6 -.2 1 0;
foam = / line #9bc3dc .1: -1 0 0 -.1 1 0;
plate = food / ellipse #f5f5f2: -1 -1 1 1|ellipse #e4e4e1: -.8 -.8 .8 .8;
bite = / ellipse bite: -1 -.8 1 .8;
spot = / ellipse any: -1 -.6 1 .6;
stripe = / line any .3: -5 -5 5 5;
sun = / ellipse #fff4aa: -1 -1 1 1;
cloud = clouds / ellipse #f5f7fa: -2.3 -.4 -.3 .6, -1.3 -.95 1.3 .55, .3 -.4 2.3 .6
""")
_SKIES = {"day": ("#3c7ddc", "#afd2f5"), "sunset": ("#5f3c78", "#ff8c32"), "night": ("#080a23", "#1e1e46")}

_SKY = "sun .25 1 .06 .3 .05 .06|cloud .4 4 .06 .25 .05 .1"
_PEOPLE = "woman,man .35 3 .93 1 .25 .5"
#: How often a place is drawn, its labels, how often it is night there, its bands and its things, in order. A band, from
#: the top down, is where it ends and its colours there and above; ``sky`` has those of the hour. A thing is its name,
#: or several to choose from, how probable it is, how often it comes at most, from where to where its foot is, and from
#: which to which size. The last place has no label, as images of real collections may have none; the filter removes it.
_PLACES = f"""
.24 /  / .33 / sky .67|#7d7d80 #55555a 1 / {_SKY}|tower,house 1 6 .67 .72 .16 .32|tree,fir .25 1 .7 .75 .25 .45|car .4
  2 .84 .95 .28 .5|bus .2 1 .85 .92 .4 .55|{_PEOPLE};
.18 / indoor / 0 / #e1d2b9 #cdb9a5 .72|#8c5f3c #644128 1 / window .5 1 .4 .55 .25 .35|sofa .6 1 .78 .84 .45 .6|cat .2
  1 .9 .95 .25 .4|dog .12 1 .9 .95 .3 .45|flower .1 3 .6 .65 .02 .03|woman,man .5 3 .94 1 .4 .7;
.07 / indoor / 0 / #a5968c #6e645a 1 / woman-face,man-face,baby-face 1 1 .9 1 .45 .6;
.08 / plant_life / 0 / #6ea546 #3c7328 1 / woman-face,man-face,baby-face 1 1 .9 1 .45 .6;
.13 / plant_life / .1 / sky .45|#6ea546 #3c7328 1 / {_SKY}|tree,fir 1 4 .5 .9 .3 .7|flower .25 6 .6 .95 .02 .03|dog
  .22 1 .9 .95 .25 .45|bird,flock .15 1 .1 .4 .03 .07|{_PEOPLE};
.06 / sea / .1 / sky .42|#2369af #143c69 .8|#e6cd9b #cdaf78 1 / {_SKY}|foam 1 9 .45 .78 .06 .2|boat .3 1 .48 .6 .05
  .1|bird,flock .25 1 .1 .35 .03 .06|{_PEOPLE}|dog .12 1 .93 .97 .2 .3;
.06 /  / .1 / sky 1 / {_SKY}|cloud .4 5 .2 .8 .06 .12|bird,flock .35 1 .25 .75 .05 .12;
.045 / plant_life / 0 / #5f964b #285a23 1 / flower 1 5 .15 .7 .07 .17;
.035 / plant_life / .1 / sky .4|#6ea546 #3c7328 1 / {_SKY}|river 1 1 1 1 .7 .9|tree,fir .8 4 .5 .95 .25 .5|house .3 1
  .44 .5 .15 .25|boat .2 1 .75 .85 .06 .08;
.035 / lake plant_life / .1 / sky .42|#78aabe #3c6e87 .75|#6ea546 #3c7328 1 / {_SKY}|hills 1 1 .42 .42 1 1.4|tree,fir
  .6 3 .76 .88 .3 .55|bird .3 1 .5 .7 .04 .07|{_PEOPLE};
.035 / indoor / 0 / #966941 #785032 1 / plate 1 1 .45 .55 .3 .4|bite 1 12 .4 .6 .04 .09;
.03 /  / 0 / #808080 #808080 1 / spot 1 8 0 1 .03 .2|stripe .7 4 0 1 .02 .1
"""

# Drawn twice as large and reduced: smooth edges.
_SUPERSAMPLING = 2


def _draw_scene(random: np.random.Generator) -> tuple[Image.Image, frozenset[str]]:
    """Draw a scene: an RGB image of 80 … 128 pixels a side, and its labels.

    >>> image, labels = _draw_scene(np.random.default_rng(1))
    >>> image.mode, labels <= _WORDS.keys()
    ('RGB', True)
    """
    width, height = (int(side) for side in random.integers(80, 129, 2))
    places = [place.split("/") for place in " ".join(_PLACES.split()).split(";")]
    place = random.choice(len(places), p=[float(weight) for weight, *_ in places])
    _, own_labels, night, bands, things = places[place]
    hour = "night" if random.random() < float(night) else "sunset" if random.random() < 0.2 else "day"
    labels = set(own_labels.split())
    image = Image.new("RGB", (width * _SUPERSAMPLING, height * _SUPERSAMPLING))
    top = 0.0
    for *colors, end in (band.split() for band in bands.split("|")):
        bottom = min(1.0, float(end) + random.uniform(-0.06, 0.06)) if float(end) < 1 else 1.0
        if colors == ["sky"]:
            colors = list(_SKIES[hour])
            labels |= {"sky"} if hour == "day" else {hour}
        _draw_band(image, top, bottom, *(_tinted(color, random) for color in colors))
        top = bottom
    light = 0.45 if "night" in labels else 1.0
    for line in things.split("|"):
        names, *numbers = line.split()
        probability, most, low, high, least, largest = map(float, numbers)
        if random.random() < probability:
            for _ in range(random.integers(1, int(most) + 1)):
                name = str(random.choice(names.split(",")))
                thing_labels, _, shapes = _THINGS[name].partition("/")
                x, y = random.uniform(0.05, 0.95) * image.width, random.uniform(low, high) * image.height
                size = random.uniform(least, largest) * image.width
                _draw_thing(image, shapes, (x, y), size, light, random)
                labels.update(thing_labels.split())
    labels.update(_IMPLIED[label] for label in list(labels) if label in _IMPLIED)
    return _develop(image.resize((width, height), Image.Resampling.BOX), random), frozenset(labels)


def _draw_band(image: Image.Image, top: float, bottom: float, first: _Color, last: _Color) -> None:
    """Fill a band between two heights, from one colour to another."""
    start, end = round(top * image.height), max(round(bottom * image.height), round(top * image.height) + 1)
    share = np.linspace(0, 1, end - start)[:, None, None]
    rows = np.array(first) * (1 - share) + np.array(last) * share
    band = np.broadcast_to(rows, (end - start, image.width, 3)).astype(np.uint8)
    image.paste(Image.fromarray(band), (0, start))


def _draw_thing(
    image: Image.Image, shapes: str, foot: tuple[float, float], size: float, light: float, random: np.random.Generator
) -> None:
    """Draw the shapes of a thing of a size in pixels whose foot is at (x, y)."""
    draw = ImageDraw.Draw(image)
    colors: dict[str, _Color] = {"window": (255, 225, 130) if light < 1 else (95, 125, 155)}
    for style, _, figures in (shape.partition(":") for shape in shapes.split("|")):
        kind, color, *width = style.split()
        if color not in colors:
            colors[color] = _tinted(str(random.choice(_COLORS.get(color, color).split())), random, light)
        options = {"width": max(1, round(float(width[0]) * size))} if kind == "line" else {}
        for numbers in figures.split(","):
            points = np.array(numbers.split(), dtype=float).reshape(-1, 2) * size + foot
            getattr(draw, kind)(points.ravel().tolist(), fill=colors[color], **options)


def _tinted(color: str, random: np.random.Generator, light: float = 1.0) -> _Color:
    """Vary a colour a little, in the light of the scene."""
    values = (np.array(ImageColor.getrgb(color)) + random.integers(-28, 29, 3)) * light
    return tuple(np.clip(values, 0, 255).astype(int).tolist())


def _develop(image: Image.Image, random: np.random.Generator) -> Image.Image:
    """Add exposure, colour cast and sensor noise; some images become black and white, some are mirrored."""
    pixels: NDArray[np.float64] = np.asarray(image, dtype=np.float64)
    if random.random() < 0.06:
        pixels = np.repeat(pixels.mean(axis=2, keepdims=True), 3, axis=2)
    pixels = pixels * random.uniform(0.8, 1.15) * random.uniform(0.92, 1.08, 3) + random.uniform(-12, 12)
    pixels = pixels + random.normal(0, random.uniform(1, 9), pixels.shape)
    if random.random() < 0.5:
        pixels = pixels[:, ::-1]
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def _write_hashtags(labels: frozenset[str], random: np.random.Generator) -> list[str]:
    """Write 0 … 20 hashtags for an image with these labels; one image in fourteen has none.

    About half of the labels are named; one image in eight has a tag of something that may be absent; one in fourteen
    has many irrelevant tags.

    >>> _write_hashtags(frozenset({"dog", "sea"}), np.random.default_rng(3))
    ['winter', 'puppy', 'dogggy', 'bravo']
    """
    if random.random() < 1 / 14:
        return []
    named = [label for label in sorted(labels) if random.random() < 0.55]
    if random.random() < 0.12:
        named.append(str(random.choice(list(_WORDS))))
    words = [str(random.choice(_WORDS[label].split())) for label in named for _ in range(1 + (random.random() < 0.25))]
    tags = [_as_typed(word, random) for word in words]
    irrelevant = random.poisson(1.8 if random.random() < 0.93 else 10)
    tags += [str(tag) for tag in random.choice(_IRRELEVANT_TAGS.split(), irrelevant)]
    if random.random() < 0.08:
        tags.append(f"geo:lat={random.uniform(-60, 60):.4f}")
    unique = list(dict.fromkeys(tags))
    return [unique[i] for i in random.permutation(len(unique))][:20]


def _as_typed(word: str, random: np.random.Generator) -> str:
    """Change a word as somebody in a hurry types it."""
    chance = random.random()
    if chance < 0.10:
        return str(random.choice(_ADJECTIVES)) + word
    if chance < 0.17 and len(word) > 3:  # two letters swapped, one left out or doubled, never the first
        i = int(random.integers(1, len(word) - 1))
        start, end = word[:i], word[i:]
        return str(random.choice([start + end[1] + end[0] + end[2:], start + end[1:], start + end[0] + end]))
    if 0.17 <= chance < 0.25:
        return word.upper() if random.random() < 0.3 else word.capitalize()
    return word


def synthesize(root: Path, n_images: int = 3000, seed: int = 0, progress: Progress = no_progress) -> None:
    """Draw ``n_images`` images with labels and hashtags into ``root``, in the layout of MIRFLICKR-25k.

    ``mirflickr/im1.jpg …``, ``mirflickr/meta/tags/tags1.txt …`` (lower-case), ``mirflickr/meta/tags_raw/…`` (as
    typed) and ``annotations/<label>.txt``. Every image is a function of (seed, number) alone. An interrupted call is
    continued, a finished folder is left unchanged, and a second process waits for the first.
    """
    if n_images < 1:
        raise InputError(f"images: {n_images} asked for; a data set has at least 1")
    with locked(root.parent / f".{root.name}.lock"):  # not inside: a new folder must be empty
        _draw_all(root, n_images, seed, progress)


def _draw_all(root: Path, n_images: int, seed: int, progress: Progress) -> None:
    marker = root / "synthetic.json"
    settings = {"format": 2, "n_images": n_images, "seed": seed}  # raise the format when the drawing changes
    if marker.exists():
        existing = json.loads(marker.read_text(encoding="utf-8"))
        if existing != existing | settings:
            raise InputError(f"{root}: holds an embedded data set made with {existing}; use another folder")
        if existing["finished"]:
            return
    elif root.exists() and any(root.iterdir()):
        raise InputError(f"{root}: is not empty and holds no embedded data set; use another folder")
    write_text(marker, json.dumps({**settings, "finished": False}))

    images, meta = root / "mirflickr", root / "mirflickr" / "meta"
    for folder in (images, meta / "tags", meta / "tags_raw", root / "annotations"):
        folder.mkdir(parents=True, exist_ok=True)
    numbers: dict[str, list[int]] = {label: [] for label in _WORDS}
    for number in range(1, n_images + 1):
        image, labels = _draw_scene(generator(seed, "scene", number))
        for label in labels:
            numbers[label].append(number)
        if not (images / f"im{number}.jpg").exists():
            tags = _write_hashtags(labels, generator(seed, "hashtags", number))
            typed = "".join(f"{tag}\n" for tag in tags)
            temporary = images / f"im{number}.tmp"  # without atomic_path: 25,000 files are not flushed one by one
            with space_for(images):
                for kind, text in (("tags_raw", typed), ("tags", typed.lower())):
                    (meta / kind / f"tags{number}.txt").write_text(text, encoding="utf-8", newline="\n")
                image.save(temporary, "JPEG", quality=90)
            temporary.replace(images / f"im{number}.jpg")  # last: the image exists only if the sample is complete
        progress(number, n_images)
    for label, images_with_it in numbers.items():
        write_text(root / "annotations" / f"{label}.txt", "".join(f"{number}\n" for number in images_with_it))
    write_text(marker, json.dumps({**settings, "finished": True}))


def load_synthetic(
    root: Path = Path("data/synthetic"),
    n_images: int = 3000,
    data_seed: int = 0,
    raw_tags: bool = True,
    progress: Progress = no_progress,
) -> Records:
    """Load the embedded data set, after drawing it into ``root`` if necessary.

    The threshold of MIRFLICKR's tag filter is scaled to the number of images: a tag is frequent if it occurs in
    20 / 25,000 of them, at least in 2.

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
    return load_mirflickr(root, min_tag_count=max(2, round(n_images * 20 / 25000)), raw_tags=raw_tags)
