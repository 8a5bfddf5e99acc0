"""Draw the parts of a scene: skies, grounds, trees, cars, animals, people. Each adds its label."""

from dataclasses import dataclass, field

import numpy as np
from PIL import Image, ImageDraw

Color = tuple[int, int, int]


@dataclass
class Canvas:
    """An image that is being drawn; coordinates are shares of its width and height, y downwards.

    >>> canvas = Canvas(Image.new("RGB", (20, 10)), np.random.default_rng(0))
    >>> draw_dog(canvas, x=0.5, y=0.9, size=0.5)
    >>> canvas.labels
    {'dog'}
    """

    image: Image.Image
    random: np.random.Generator
    labels: set[str] = field(default_factory=set)
    light: float = 1.0  # brightness of things: less at night

    def __post_init__(self) -> None:
        self.draw = ImageDraw.Draw(self.image)
        self.width, self.height = self.image.size

    def uniform(self, low: float, high: float) -> float:
        return float(self.random.uniform(low, high))

    def chance(self, probability: float) -> bool:
        return bool(self.random.random() < probability)

    def color(self, base: Color, spread: int = 25) -> Color:
        """Vary ``base`` a little, in the light of the scene."""
        values = (np.array(base) + self.random.integers(-spread, spread + 1, 3)) * self.light
        red, green, blue = np.clip(values, 0, 255).astype(int)
        return int(red), int(green), int(blue)

    def polygon(self, points: list[tuple[float, float]], color: Color) -> None:
        self.draw.polygon([(x * self.width, y * self.height) for x, y in points], fill=color)

    def box(self, left: float, top: float, right: float, bottom: float, color: Color) -> None:
        self.polygon([(left, top), (right, top), (right, bottom), (left, bottom)], color)

    def ellipse(self, x: float, y: float, rx: float, ry: float, color: Color) -> None:
        """Draw an ellipse about (x, y); radii are shares of the width, so that circles stay round."""
        cx, cy, a, b = x * self.width, y * self.height, rx * self.width, ry * self.width
        self.draw.ellipse([cx - a, cy - b, cx + a, cy + b], fill=color)

    def line(self, points: list[tuple[float, float]], color: Color, width: float) -> None:
        """Draw a line; ``width`` is a share of the image's width."""
        pixels = [(x * self.width, y * self.height) for x, y in points]
        self.draw.line(pixels, fill=color, width=max(1, round(width * self.width)))

    def gradient(self, top: float, bottom: float, first: Color, last: Color) -> None:
        """Fill a band between two heights, from one colour to another."""
        start, end = round(top * self.height), max(round(bottom * self.height), round(top * self.height) + 1)
        share = np.linspace(0, 1, end - start)[:, None, None]
        rows = np.array(first) * (1 - share) + np.array(last) * share
        band = np.broadcast_to(rows, (end - start, self.width, 3)).astype(np.uint8)
        self.image.paste(Image.fromarray(band), (0, start))


def shade(color: Color, factor: float) -> Color:
    """Make a colour darker or lighter.

    >>> shade((200, 100, 0), 0.5)
    (100, 50, 0)
    """
    red, green, blue = (min(255, int(part * factor)) for part in color)
    return red, green, blue


# Skies and grounds


def draw_sky(canvas: Canvas, horizon: float, mood: str | None = None) -> None:
    """Draw the sky down to the horizon, by day, at sunset or at night."""
    if mood is None:
        mood = str(canvas.random.choice(["day", "sunset", "night"], p=[0.7, 0.19, 0.11]))
    if mood == "night":
        canvas.labels.add("night")
        canvas.gradient(0, horizon, canvas.color((8, 10, 35), 6), canvas.color((30, 30, 70), 12))
        canvas.light = 0.4
        for _ in range(canvas.random.integers(8, 30)):
            canvas.ellipse(canvas.uniform(0, 1), canvas.uniform(0, horizon), 0.004, 0.004, (230, 230, 210))
        if canvas.chance(0.5):
            canvas.ellipse(canvas.uniform(0.1, 0.9), canvas.uniform(0.05, 0.3), 0.06, 0.06, (240, 238, 205))
        if canvas.chance(0.5):
            canvas.labels.add("sky")
        return
    canvas.labels.add("sky")
    if mood == "sunset":
        canvas.labels.add("sunset")
        canvas.gradient(0, horizon, canvas.color((95, 60, 120)), canvas.color((255, 140, 50)))
        canvas.ellipse(
            canvas.uniform(0.15, 0.85),
            horizon - canvas.uniform(0.0, 0.14),
            0.08,
            0.08,
            canvas.color((255, 225, 120), 15),
        )
        canvas.light = 0.6
    else:
        canvas.gradient(0, horizon, canvas.color((60, 125, 220)), canvas.color((175, 210, 245)))
        if canvas.chance(0.3):
            canvas.ellipse(canvas.uniform(0.1, 0.9), canvas.uniform(0.06, 0.2), 0.06, 0.06, (255, 244, 170))
    if canvas.chance(0.4):
        draw_clouds(canvas, horizon, (255, 190, 150) if mood == "sunset" else (245, 247, 250))


def draw_clouds(canvas: Canvas, horizon: float, color: Color) -> None:
    """Draw clouds."""
    canvas.labels.add("clouds")
    for _ in range(canvas.random.integers(2, 6)):
        x, y, size = canvas.uniform(0, 1), canvas.uniform(0.05, 0.7) * horizon, canvas.uniform(0.04, 0.1)
        for step in range(-2, 3):
            radius = size * (1.1 - 0.25 * abs(step))
            canvas.ellipse(x + step * size, y, 1.3 * radius, 0.75 * radius, canvas.color(color, 6))


def draw_waves(canvas: Canvas, top: float, bottom: float, color: Color) -> None:
    """Draw waves."""
    canvas.gradient(top, bottom, canvas.color(color, 10), canvas.color(shade(color, 0.6), 10))
    for _ in range(canvas.random.integers(10, 22)):
        y, x, length = canvas.uniform(top + 0.02, bottom), canvas.uniform(-0.1, 1), canvas.uniform(0.06, 0.25)
        foam = canvas.color(shade(color, 1.5), 10)
        canvas.line([(x, y), (x + length / 2, y - 0.012), (x + length, y)], foam, 0.008)


def draw_grass(canvas: Canvas, top: float, bottom: float = 1.0) -> None:
    """Draw grass."""
    canvas.gradient(top, bottom, canvas.color((110, 165, 70)), canvas.color((60, 115, 40)))
    for _ in range(25):
        x, y = canvas.uniform(0, 1), canvas.uniform(top + 0.02, bottom)
        canvas.line([(x, y), (x + 0.01, y - 0.03)], canvas.color((70, 140, 45)), 0.006)


def draw_hills(canvas: Canvas, horizon: float) -> None:
    """Draw hills."""
    points = [(0.0, horizon)]
    points += [(x, horizon - canvas.uniform(0.02, 0.2)) for x in np.linspace(0, 1, 6)]
    canvas.polygon([*points, (1.0, horizon)], canvas.color((95, 110, 120)))


# Things


def draw_tree(canvas: Canvas, x: float, foot: float, height: float) -> None:
    """Draw a tree, or sometimes a fir, that stands at ``foot``."""
    canvas.labels.add("tree")
    canvas.box(x - 0.07 * height, foot - 0.5 * height, x + 0.07 * height, foot, canvas.color((95, 65, 40)))
    leaf = (45, 115, 45) if canvas.chance(0.8) else (190, 110, 40)
    if canvas.chance(0.35):
        for step in range(3):
            top, half = foot - height * (1 - 0.22 * step), height * (0.16 + 0.07 * step)
            canvas.polygon(
                [(x, top), (x - half, top + 0.42 * height), (x + half, top + 0.42 * height)], canvas.color(leaf, 12)
            )
        return
    for _ in range(9):
        canvas.ellipse(
            x + canvas.uniform(-0.2, 0.2) * height,
            foot - height * canvas.uniform(0.5, 0.95),
            0.15 * height,
            0.14 * height,
            canvas.color(leaf, 20),
        )


def draw_flower(canvas: Canvas, x: float, y: float, size: float) -> None:
    """Draw a flower."""
    canvas.labels.add("flower")
    colors: list[Color] = [(225, 45, 60), (250, 200, 40), (205, 90, 200), (250, 245, 245), (240, 120, 170)]
    petal = canvas.color(colors[canvas.random.integers(len(colors))], 15)
    canvas.line(
        [(x, y), (x + canvas.uniform(-0.05, 0.05), min(1.0, y + 4 * size))], canvas.color((50, 120, 45)), size / 5
    )
    count = int(canvas.random.integers(5, 9))
    aspect = canvas.width / canvas.height
    for angle in np.linspace(0, 2 * np.pi, count, endpoint=False):
        canvas.ellipse(x + size * np.cos(angle), y + size * np.sin(angle) * aspect, 0.62 * size, 0.62 * size, petal)
    canvas.ellipse(x, y, 0.55 * size, 0.55 * size, canvas.color((245, 190, 50) if petal[2] > 70 else (90, 55, 30)))


def draw_building(canvas: Canvas, left: float, foot: float, width: float, height: float) -> None:
    """Draw a building."""
    canvas.labels.add("structures")
    walls: list[Color] = [(165, 120, 95), (150, 150, 158), (205, 190, 165), (130, 95, 90), (110, 125, 150)]
    canvas.box(left, foot - height, left + width, foot, canvas.color(walls[canvas.random.integers(len(walls))]))
    if height < 0.4 and canvas.chance(0.7):
        roof = [
            (left - 0.02, foot - height),
            (left + width / 2, foot - height - 0.14),
            (left + width + 0.02, foot - height),
        ]
        canvas.polygon(roof, canvas.color((150, 60, 45)))
    lit = (255, 225, 130) if "night" in canvas.labels else canvas.color((95, 125, 155), 15)
    columns, rows = max(2, int(width / 0.07)), max(2, int(height / 0.1))
    for column in range(columns):
        for row in range(rows):
            if canvas.chance(0.85):
                x = left + width * (column + 0.3) / columns
                y = foot - height + height * (row + 0.25) / rows
                canvas.box(x, y, x + 0.4 * width / columns, y + 0.45 * height / rows, lit)


def draw_car(canvas: Canvas, x: float, y: float, size: float) -> None:
    """Draw a car."""
    canvas.labels.add("car")
    colors: list[Color] = [(200, 35, 40), (40, 75, 185), (240, 200, 50), (225, 225, 228), (35, 35, 40), (50, 130, 70)]
    body = canvas.color(colors[canvas.random.integers(len(colors))], 12)
    tall = size * canvas.width / canvas.height
    canvas.polygon(
        [
            (x - 0.28 * size, y - 0.2 * tall),
            (x - 0.17 * size, y - 0.4 * tall),
            (x + 0.17 * size, y - 0.4 * tall),
            (x + 0.3 * size, y - 0.2 * tall),
        ],
        body,
    )
    canvas.box(x - 0.5 * size, y - 0.22 * tall, x + 0.5 * size, y - 0.02 * tall, body)
    glass = canvas.color((185, 215, 235), 10)
    canvas.box(x - 0.16 * size, y - 0.36 * tall, x - 0.01 * size, y - 0.22 * tall, glass)
    canvas.box(x + 0.02 * size, y - 0.36 * tall, x + 0.17 * size, y - 0.22 * tall, glass)
    for wheel in (-0.28, 0.28):
        canvas.ellipse(x + wheel * size, y, 0.11 * size, 0.11 * size, (25, 25, 25))
        canvas.ellipse(x + wheel * size, y, 0.05 * size, 0.05 * size, (150, 150, 150))
    if "night" in canvas.labels:
        canvas.ellipse(x + 0.5 * size, y - 0.13 * tall, 0.05 * size, 0.05 * size, (255, 245, 180))


def draw_boat(canvas: Canvas, x: float, y: float, size: float) -> None:
    """Draw a boat."""
    canvas.labels.add("transport")
    canvas.polygon(
        [(x - size, y - 0.3 * size), (x + size, y - 0.3 * size), (x + 0.6 * size, y), (x - 0.6 * size, y)],
        canvas.color((140, 70, 50)),
    )
    canvas.polygon(
        [(x, y - 2 * size), (x, y - 0.4 * size), (x + 0.9 * size, y - 0.4 * size)], canvas.color((245, 245, 240))
    )


def draw_bird(canvas: Canvas, x: float, y: float, size: float) -> None:
    """Draw a bird, or sometimes a flock."""
    canvas.labels.add("bird")
    if canvas.chance(0.55):
        color = canvas.color((40, 40, 45), 15)
        for _ in range(canvas.random.integers(1, 5)):
            bx, by, s = x + canvas.uniform(-0.25, 0.25), y + canvas.uniform(-0.12, 0.12), size * canvas.uniform(0.6, 1)
            canvas.line([(bx - s, by - 0.5 * s), (bx, by), (bx + s, by - 0.5 * s)], color, 0.022)
        return
    colors: list[Color] = [(60, 120, 200), (190, 60, 50), (240, 240, 240), (110, 85, 60)]
    feathers = canvas.color(colors[canvas.random.integers(len(colors))], 15)
    canvas.polygon(
        [(x - size, y + 0.1 * size), (x - 2 * size, y + 0.7 * size), (x - 0.7 * size, y + 0.6 * size)], feathers
    )
    canvas.ellipse(x, y, 1.2 * size, 0.75 * size, feathers)
    canvas.ellipse(x + 1.1 * size, y - 0.6 * size, 0.5 * size, 0.5 * size, feathers)
    canvas.polygon(
        [(x + 1.5 * size, y - 0.7 * size), (x + 2.1 * size, y - 0.55 * size), (x + 1.5 * size, y - 0.35 * size)],
        (240, 160, 30),
    )
    canvas.ellipse(x + 1.2 * size, y - 0.7 * size, 0.1 * size, 0.1 * size, (15, 15, 15))


def draw_dog(canvas: Canvas, x: float, y: float, size: float) -> None:
    """Draw a dog."""
    canvas.labels.add("dog")
    colors: list[Color] = [(150, 100, 55), (70, 50, 40), (225, 205, 170), (95, 95, 95)]
    fur = canvas.color(colors[canvas.random.integers(len(colors))], 12)
    dark = shade(fur, 0.6)
    tall = size * canvas.width / canvas.height
    for leg in (-0.4, -0.25, 0.25, 0.4):
        canvas.box(x + (leg - 0.06) * size, y - 0.4 * tall, x + (leg + 0.06) * size, y, dark)
    canvas.ellipse(x, y - 0.5 * tall, 0.52 * size, 0.23 * size, fur)
    canvas.line([(x - 0.45 * size, y - 0.55 * tall), (x - 0.72 * size, y - 0.9 * tall)], fur, 0.09 * size)
    canvas.ellipse(x + 0.52 * size, y - 0.82 * tall, 0.24 * size, 0.22 * size, fur)
    canvas.ellipse(x + 0.72 * size, y - 0.76 * tall, 0.14 * size, 0.1 * size, fur)
    canvas.ellipse(x + 0.83 * size, y - 0.79 * tall, 0.045 * size, 0.045 * size, (20, 20, 20))
    canvas.ellipse(x + 0.4 * size, y - 0.8 * tall, 0.08 * size, 0.2 * size, dark)
    canvas.ellipse(x + 0.58 * size, y - 0.9 * tall, 0.035 * size, 0.035 * size, (15, 15, 15))


def draw_cat(canvas: Canvas, x: float, y: float, size: float) -> None:
    """Draw a cat."""
    canvas.labels.add("animals")
    fur = canvas.color((215, 140, 60) if canvas.chance(0.5) else (90, 90, 95), 15)
    tall = size * canvas.width / canvas.height
    canvas.ellipse(x, y - 0.3 * tall, 0.3 * size, 0.34 * size, fur)
    canvas.ellipse(x, y - 0.8 * tall, 0.24 * size, 0.22 * size, fur)
    for side in (-1, 1):
        ear = [
            (x + side * 0.23 * size, y - 0.85 * tall),
            (x + side * 0.2 * size, y - 1.18 * tall),
            (x, y - 0.98 * tall),
        ]
        canvas.polygon(ear, fur)
        canvas.ellipse(x + side * 0.1 * size, y - 0.83 * tall, 0.045 * size, 0.045 * size, (120, 200, 90))
    canvas.line([(x + 0.25 * size, y - 0.1 * tall), (x + 0.6 * size, y - 0.5 * tall)], fur, 0.09 * size)


_SKIN: list[Color] = [(240, 205, 175), (225, 175, 140), (170, 115, 80), (110, 75, 55)]


def draw_person(canvas: Canvas, x: float, foot: float, height: float, kind: str | None = None) -> None:
    """Draw a standing person; women wear a dress and long hair, men trousers and short hair."""
    kind = kind or str(canvas.random.choice(["female", "male"]))
    canvas.labels.add(kind)
    skin = canvas.color(_SKIN[canvas.random.integers(len(_SKIN))], 8)
    hair = canvas.color(((60, 40, 25), (25, 20, 20), (205, 165, 85))[canvas.random.integers(3)], 10)
    shirts: list[Color] = [(200, 50, 60), (50, 90, 180), (240, 230, 220), (60, 150, 90), (230, 170, 50), (140, 60, 150)]
    cloth = canvas.color(shirts[canvas.random.integers(len(shirts))], 15)
    unit = height * canvas.height / canvas.width  # height in shares of the width
    top = foot - height
    if kind == "female":
        canvas.ellipse(x, top + 0.13 * height, 0.105 * unit, 0.15 * unit, hair)
        canvas.polygon(
            [(x, top + 0.22 * height), (x - 0.2 * unit, top + 0.78 * height), (x + 0.2 * unit, top + 0.78 * height)],
            cloth,
        )
        legs = skin
    else:
        canvas.ellipse(x, top + 0.08 * height, 0.085 * unit, 0.08 * unit, hair)
        canvas.box(x - 0.11 * unit, top + 0.22 * height, x + 0.11 * unit, top + 0.58 * height, cloth)
        legs = canvas.color((50, 55, 80), 15)
    for side in (-1, 1):
        lower = 0.76 if kind == "female" else 0.56
        canvas.box(x + (side * 0.06 - 0.035) * unit, top + lower * height, x + (side * 0.06 + 0.035) * unit, foot, legs)
        arm = [(x + side * 0.1 * unit, top + 0.27 * height), (x + side * 0.19 * unit, top + 0.52 * height)]
        canvas.line(arm, skin, 0.05 * unit)
    canvas.ellipse(x, top + 0.12 * height, 0.072 * unit, 0.09 * unit, skin)


def draw_face(canvas: Canvas, x: float, y: float, size: float, kind: str) -> None:
    """Draw a face that fills the image: a portrait."""
    canvas.labels.add(kind)
    skin = canvas.color(_SKIN[canvas.random.integers(len(_SKIN))], 8)
    hair = canvas.color(((60, 40, 25), (25, 20, 20), (205, 165, 85), (150, 70, 35))[canvas.random.integers(4)], 10)
    aspect = canvas.width / canvas.height
    cloth = canvas.color(((190, 60, 70), (60, 90, 170), (225, 220, 210), (50, 50, 55))[canvas.random.integers(4)])
    canvas.ellipse(x, y + 2.1 * size * aspect, 1.5 * size, 1.0 * size, cloth)
    if kind == "female":
        canvas.ellipse(x, y + 0.2 * size * aspect, 1.15 * size, 1.5 * size, hair)
    else:
        canvas.ellipse(x, y - 0.35 * size * aspect, 0.95 * size, 0.95 * size, hair if kind == "male" else skin)
    round_face = 1.0 if kind == "baby" else 0.8
    canvas.ellipse(x, y, round_face * size, 1.05 * size, skin)
    for side in (-1, 1):
        canvas.ellipse(x + side * 0.33 * size, y - 0.12 * size * aspect, 0.15 * size, 0.1 * size, (250, 250, 250))
        canvas.ellipse(x + side * 0.33 * size, y - 0.12 * size * aspect, 0.08 * size, 0.08 * size, (40, 45, 60))
    canvas.ellipse(x, y + 0.5 * size * aspect, 0.26 * size, 0.09 * size, canvas.color((190, 70, 80), 10))
    if kind == "baby":
        canvas.ellipse(x, y - 0.75 * size * aspect, 0.5 * size, 0.35 * size, canvas.color((175, 215, 245), 10))
    elif kind == "male" and canvas.chance(0.4):
        canvas.ellipse(x, y + 0.85 * size * aspect, 0.5 * size, 0.28 * size, hair)
