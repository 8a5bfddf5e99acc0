"""Procedurally drawn scenes: images that show what their labels say.

A scene is a place (beach, lake, street, room, …) with things in it. What is drawn decides the labels; labels that
follow from others (a sea is water, a dog is an animal) are added at the end.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from channelhash.data.synthetic.shapes import (
    Canvas,
    Color,
    draw_bird,
    draw_boat,
    draw_building,
    draw_car,
    draw_cat,
    draw_clouds,
    draw_dog,
    draw_face,
    draw_flower,
    draw_grass,
    draw_hills,
    draw_person,
    draw_sky,
    draw_tree,
    draw_waves,
    shade,
)

#: The 24 potential labels of MIRFLICKR-25k.
LABELS = (
    "animals", "baby", "bird", "car", "clouds", "dog", "female", "flower", "food", "indoor", "lake", "male", "night",
    "people", "plant_life", "portrait", "river", "sea", "sky", "structures", "sunset", "transport", "tree", "water",
)  # fmt: skip

#: label -> labels that follow from it.
IMPLIED: dict[str, tuple[str, ...]] = {
    "sea": ("water",),
    "lake": ("water",),
    "river": ("water",),
    "sunset": ("sky",),
    "clouds": ("sky",),
    "dog": ("animals",),
    "bird": ("animals",),
    "car": ("transport",),
    "tree": ("plant_life",),
    "flower": ("plant_life",),
    "female": ("people",),
    "male": ("people",),
    "baby": ("people",),
    "portrait": ("people",),
}

# Drawn twice as large and reduced: smooth edges.
_SUPERSAMPLING = 2


def draw_scene(random: np.random.Generator) -> tuple[Image.Image, frozenset[str]]:
    """Draw a scene: an RGB image of 80 … 128 pixels a side, and its labels.

    >>> image, labels = draw_scene(np.random.default_rng(1))
    >>> image.mode, labels <= set(LABELS)
    ('RGB', True)
    """
    width, height = (int(side) for side in random.integers(80, 129, 2))
    size = (width * _SUPERSAMPLING, height * _SUPERSAMPLING)
    canvas = Canvas(Image.new("RGB", size), random)
    names = list(_PLACES)
    weights = np.array([weight for weight, _ in _PLACES.values()])
    _PLACES[names[random.choice(len(names), p=weights / weights.sum())]][1](canvas)
    labels = set(canvas.labels)
    for label in canvas.labels:
        labels.update(IMPLIED.get(label, ()))
    return _develop(canvas.image.resize((width, height), Image.Resampling.BOX), random), frozenset(labels)


def _develop(image: Image.Image, random: np.random.Generator) -> Image.Image:
    """Add exposure, colour cast and sensor noise; some images become black and white, some are mirrored."""
    pixels: NDArray[np.float64] = np.asarray(image, dtype=np.float64)
    if random.random() < 0.06:
        pixels = np.repeat(pixels.mean(axis=2, keepdims=True), 3, axis=2)
    pixels = pixels * random.uniform(0.8, 1.15) * random.uniform(0.92, 1.08, 3) + random.uniform(-12, 12)
    pixels = pixels + random.normal(0, random.uniform(1, 9), pixels.shape)
    if random.random() < 0.5:
        pixels = pixels[:, ::-1]
    developed: NDArray[np.uint8] = np.clip(pixels, 0, 255).astype(np.uint8)
    return Image.fromarray(developed)


# Places


def _people(canvas: Canvas, foot: float, probability: float, height: tuple[float, float] = (0.25, 0.5)) -> None:
    if canvas.chance(probability):
        for _ in range(canvas.random.integers(1, 4)):
            draw_person(canvas, canvas.uniform(0.1, 0.9), foot + canvas.uniform(-0.03, 0.03), canvas.uniform(*height))


def _beach(canvas: Canvas) -> None:
    horizon, shore = canvas.uniform(0.3, 0.55), canvas.uniform(0.7, 0.9)
    draw_sky(canvas, horizon)
    canvas.labels.add("sea")
    draw_waves(canvas, horizon, shore, canvas.color((35, 105, 175)))
    canvas.gradient(shore, 1, canvas.color((230, 205, 155)), canvas.color((205, 175, 120)))
    if canvas.chance(0.3):
        draw_boat(canvas, canvas.uniform(0.15, 0.85), horizon + 0.1, canvas.uniform(0.05, 0.1))
    if canvas.chance(0.25):
        draw_bird(canvas, canvas.uniform(0.2, 0.8), horizon * canvas.uniform(0.3, 0.8), canvas.uniform(0.03, 0.06))
    _people(canvas, 0.96, 0.35)
    if canvas.chance(0.12):
        draw_dog(canvas, canvas.uniform(0.25, 0.75), 0.95, canvas.uniform(0.2, 0.3))


def _lakeside(canvas: Canvas) -> None:
    horizon, shore = canvas.uniform(0.35, 0.5), canvas.uniform(0.68, 0.82)
    draw_sky(canvas, horizon)
    draw_hills(canvas, horizon)
    canvas.labels.add("lake")
    canvas.gradient(horizon, shore, canvas.color((120, 170, 190)), canvas.color((60, 110, 135)))
    draw_grass(canvas, shore)
    canvas.labels.add("plant_life")
    for _ in range(canvas.random.integers(0, 4)):
        draw_tree(canvas, canvas.uniform(0, 1), shore + canvas.uniform(0, 0.12), canvas.uniform(0.3, 0.55))
    if canvas.chance(0.3):
        draw_bird(canvas, canvas.uniform(0.2, 0.8), canvas.uniform(horizon, shore), canvas.uniform(0.04, 0.07))
    _people(canvas, 0.97, 0.2)


def _riverside(canvas: Canvas) -> None:
    horizon = canvas.uniform(0.3, 0.5)
    draw_sky(canvas, horizon)
    draw_grass(canvas, horizon)
    canvas.labels.update(("river", "plant_life"))
    bend, end = canvas.uniform(0.25, 0.75), canvas.uniform(0.2, 0.8)
    water = canvas.color((70, 130, 170))
    canvas.polygon(
        [
            (bend - 0.03, horizon),
            (bend + 0.03, horizon),
            (bend + 0.2, (horizon + 1) / 2),
            (end + 0.4, 1),
            (end - 0.3, 1),
            (bend - 0.1, (horizon + 1) / 2),
        ],
        water,
    )
    for _ in range(canvas.random.integers(1, 5)):
        side = canvas.uniform(0, 0.3) if canvas.chance(0.5) else canvas.uniform(0.75, 1)
        draw_tree(canvas, side, canvas.uniform(horizon + 0.1, 0.95), canvas.uniform(0.25, 0.5))
    if canvas.chance(0.3):
        draw_building(
            canvas, canvas.uniform(0, 0.7), horizon + 0.04, canvas.uniform(0.12, 0.25), canvas.uniform(0.15, 0.3)
        )
    if canvas.chance(0.2):
        draw_boat(canvas, bend + 0.05, (horizon + 1) / 2 + 0.08, 0.07)


def _park(canvas: Canvas) -> None:
    horizon = canvas.uniform(0.3, 0.6)
    draw_sky(canvas, horizon)
    draw_grass(canvas, horizon)
    canvas.labels.add("plant_life")
    for _ in range(canvas.random.integers(1, 5)):
        draw_tree(canvas, canvas.uniform(0, 1), canvas.uniform(horizon + 0.05, 0.9), canvas.uniform(0.3, 0.7))
    if canvas.chance(0.25):
        for _ in range(canvas.random.integers(3, 8)):
            draw_flower(canvas, canvas.uniform(0, 1), canvas.uniform(horizon + 0.15, 0.95), canvas.uniform(0.015, 0.03))
    if canvas.chance(0.22):
        draw_dog(canvas, canvas.uniform(0.2, 0.7), 0.93, canvas.uniform(0.25, 0.45))
    if canvas.chance(0.15):
        draw_bird(canvas, canvas.uniform(0.2, 0.8), canvas.uniform(0.1, horizon), canvas.uniform(0.03, 0.07))
    _people(canvas, 0.95, 0.35)


def _street(canvas: Canvas) -> None:
    horizon = canvas.uniform(0.6, 0.75)
    draw_sky(canvas, horizon, str(canvas.random.choice(["day", "sunset", "night"], p=[0.58, 0.09, 0.33])))
    left = -0.05
    while left < 1:
        width = canvas.uniform(0.14, 0.34)
        draw_building(canvas, left, horizon, width, canvas.uniform(0.2, 0.6))
        left += width + canvas.uniform(0, 0.06)
    canvas.gradient(horizon, 1, canvas.color((125, 125, 128), 10), canvas.color((85, 85, 90), 10))
    for x in (0.05, 0.35, 0.65):
        canvas.box(x, 0.88, x + 0.15, 0.9, canvas.color((225, 225, 215), 5))
    if canvas.chance(0.42):
        for _ in range(canvas.random.integers(1, 3)):
            draw_car(canvas, canvas.uniform(0.2, 0.8), canvas.uniform(0.84, 0.95), canvas.uniform(0.28, 0.5))
    elif canvas.chance(0.35):
        canvas.labels.add("transport")  # a bus
        x = canvas.uniform(0.1, 0.4)
        canvas.box(x, 0.6, x + 0.5, 0.9, canvas.color((210, 50, 45)))
        for window in range(5):
            canvas.box(
                x + 0.03 + 0.095 * window, 0.64, x + 0.1 + 0.095 * window, 0.74, canvas.color((190, 220, 240), 8)
            )
        for wheel in (0.1, 0.4):
            canvas.ellipse(x + wheel, 0.9, 0.05, 0.05, (25, 25, 25))
    if canvas.chance(0.25):
        draw_tree(canvas, canvas.uniform(0.05, 0.95), horizon + 0.06, canvas.uniform(0.25, 0.45))
    _people(canvas, 0.96, 0.4, (0.25, 0.45))


def _room(canvas: Canvas) -> None:
    canvas.labels.add("indoor")
    floor = canvas.uniform(0.65, 0.8)
    wallpaper: list[Color] = [(225, 210, 185), (170, 195, 190), (205, 175, 170), (190, 190, 205), (120, 90, 80)]
    wall = canvas.color(wallpaper[canvas.random.integers(len(wallpaper))])
    canvas.gradient(0, floor, wall, shade(wall, 0.9))
    canvas.gradient(floor, 1, canvas.color((140, 95, 60)), canvas.color((100, 65, 40)))
    if canvas.chance(0.5):
        x, y = canvas.uniform(0.05, 0.6), canvas.uniform(0.08, 0.25)
        canvas.box(x, y, x + 0.3, y + 0.3, canvas.color((245, 245, 245), 5))
        canvas.box(x + 0.02, y + 0.02, x + 0.28, y + 0.28, canvas.color((150, 195, 235)))
        canvas.box(x + 0.145, y, x + 0.155, y + 0.3, (240, 240, 240))
    sofa = canvas.color(((150, 50, 55), (60, 90, 130), (110, 120, 70))[canvas.random.integers(3)])
    if canvas.chance(0.6):
        x = canvas.uniform(-0.1, 0.4)
        canvas.box(x, floor - 0.16, x + 0.55, floor + 0.12, sofa)
        canvas.box(x - 0.04, floor - 0.05, x + 0.04, floor + 0.14, sofa)
        canvas.box(x + 0.51, floor - 0.05, x + 0.59, floor + 0.14, sofa)
    if canvas.chance(0.3):
        canvas.line([(0.8, 0), (0.8, 0.15)], (60, 60, 60), 0.01)
        canvas.ellipse(0.8, 0.18, 0.07, 0.05, (255, 235, 160))
    if canvas.chance(0.2):
        draw_cat(canvas, canvas.uniform(0.2, 0.8), 0.94, canvas.uniform(0.25, 0.4))
    elif canvas.chance(0.13):
        draw_dog(canvas, canvas.uniform(0.25, 0.65), 0.94, canvas.uniform(0.3, 0.45))
    if canvas.chance(0.12):
        canvas.box(0.72, floor - 0.08, 0.82, floor + 0.06, canvas.color((90, 130, 170)))
        for shift in (-0.04, 0.0, 0.05):
            draw_flower(canvas, 0.77 + shift, floor - 0.16 - abs(shift), 0.03)
    _people(canvas, 0.97, 0.5, (0.4, 0.7))


def _table(canvas: Canvas) -> None:
    """Draw a plate seen from above."""
    canvas.labels.update(("food", "indoor"))
    canvas.gradient(0, 1, canvas.color((150, 105, 65)), canvas.color((120, 80, 50)))
    x, y, size = canvas.uniform(0.4, 0.6), canvas.uniform(0.4, 0.6), canvas.uniform(0.3, 0.42)
    canvas.ellipse(x, y, size, size, canvas.color((245, 245, 242), 6))
    canvas.ellipse(x, y, 0.8 * size, 0.8 * size, canvas.color((228, 228, 225), 6))
    colors: list[Color] = [(200, 60, 40), (90, 150, 50), (230, 180, 70), (140, 80, 40), (245, 220, 170), (220, 110, 60)]
    for _ in range(canvas.random.integers(6, 14)):
        angle, distance = canvas.uniform(0, 2 * np.pi), canvas.uniform(0, 0.55) * size
        color = canvas.color(colors[canvas.random.integers(len(colors))], 15)
        dx, dy = distance * np.cos(angle), distance * np.sin(angle) * canvas.width / canvas.height
        canvas.ellipse(x + dx, y + dy, canvas.uniform(0.15, 0.3) * size, canvas.uniform(0.12, 0.25) * size, color)
    canvas.line([(0.06, 0.25), (0.06, 0.75)], (200, 200, 205), 0.02)
    canvas.line([(0.94, 0.25), (0.94, 0.75)], (200, 200, 205), 0.02)


def _flower_bed(canvas: Canvas) -> None:
    """Draw a close-up of flowers."""
    canvas.labels.add("plant_life")
    canvas.gradient(0, 1, canvas.color((95, 150, 75)), canvas.color((40, 90, 35)))
    for _ in range(14):
        canvas.ellipse(canvas.uniform(0, 1), canvas.uniform(0, 1), 0.07, 0.04, canvas.color((60, 130, 50), 30))
    for _ in range(canvas.random.integers(1, 5)):
        draw_flower(canvas, canvas.uniform(0.15, 0.85), canvas.uniform(0.15, 0.7), canvas.uniform(0.07, 0.17))


def _portrait(canvas: Canvas) -> None:
    canvas.labels.add("portrait")
    if canvas.chance(0.45):
        canvas.labels.add("indoor")
        wall = canvas.color((165, 150, 140), 45)
        canvas.gradient(0, 1, wall, shade(wall, 0.7))
    elif canvas.chance(0.5):
        draw_grass(canvas, 0.0)
        canvas.labels.add("plant_life")
    else:
        dark = canvas.color((45, 45, 50), 25)
        canvas.gradient(0, 1, dark, dark)
    kind = str(canvas.random.choice(["female", "male", "baby"], p=[0.54, 0.38, 0.08]))
    draw_face(canvas, canvas.uniform(0.38, 0.62), canvas.uniform(0.36, 0.5), canvas.uniform(0.2, 0.3), kind)


def _open_sky(canvas: Canvas) -> None:
    draw_sky(canvas, 1.0)
    if "clouds" not in canvas.labels and "night" not in canvas.labels and canvas.chance(0.6):
        draw_clouds(canvas, 1.0, (245, 247, 250))
    if canvas.chance(0.35):
        draw_bird(canvas, canvas.uniform(0.25, 0.75), canvas.uniform(0.25, 0.75), canvas.uniform(0.05, 0.12))


def _abstract(canvas: Canvas) -> None:
    """Draw stripes or spots without a label: real collections have such images, and the filter removes them."""
    canvas.gradient(0, 1, canvas.color((128, 128, 128), 110), canvas.color((128, 128, 128), 110))
    for _ in range(canvas.random.integers(4, 12)):
        color = canvas.color((128, 128, 128), 120)
        if canvas.chance(0.5):
            canvas.ellipse(canvas.uniform(0, 1), canvas.uniform(0, 1), canvas.uniform(0.03, 0.2), 0.1, color)
        else:
            x = canvas.uniform(0, 1)
            canvas.line([(x, 0), (canvas.uniform(0, 1), 1)], color, canvas.uniform(0.01, 0.08))


#: name -> (how often, how it is drawn).
_PLACES: dict[str, tuple[float, Callable[[Canvas], None]]] = {
    "street": (0.24, _street),
    "room": (0.18, _room),
    "portrait": (0.15, _portrait),
    "park": (0.13, _park),
    "beach": (0.06, _beach),
    "open sky": (0.06, _open_sky),
    "flower bed": (0.045, _flower_bed),
    "riverside": (0.035, _riverside),
    "lakeside": (0.035, _lakeside),
    "table": (0.035, _table),
    "abstract": (0.03, _abstract),
}
