"""Hashtags as people write them: synonyms, run-together words, misspellings, other casings, irrelevant tags."""

import numpy as np

#: label -> words that people use for it; some words belong to several labels.
WORDS: dict[str, tuple[str, ...]] = {
    "animals": ("animal", "animals", "pet", "cute", "wildlife"),
    "baby": ("baby", "newborn", "infant", "child"),
    "bird": ("bird", "birds", "seagull", "feathers", "wings"),
    "car": ("car", "cars", "auto", "vehicle", "driving"),
    "clouds": ("clouds", "cloud", "cloudy", "cumulus"),
    "dog": ("dog", "puppy", "doggy", "canine", "hound"),
    "female": ("girl", "woman", "lady", "female", "dress"),
    "flower": ("flower", "flowers", "blossom", "bloom", "petals"),
    "food": ("food", "dinner", "lunch", "delicious", "cooking", "yummy"),
    "indoor": ("home", "room", "indoors", "interior", "house"),
    "lake": ("lake", "pond", "lakeside", "reflection"),
    "male": ("man", "boy", "guy", "male", "dude"),
    "night": ("night", "nighttime", "dark", "lights", "evening"),
    "people": ("people", "friends", "person", "crowd"),
    "plant_life": ("green", "nature", "plants", "garden", "grass"),
    "portrait": ("portrait", "face", "selfportrait", "eyes", "headshot"),
    "river": ("river", "stream", "riverbank", "creek"),
    "sea": ("sea", "ocean", "beach", "waves", "coast"),
    "sky": ("sky", "blue", "skies", "heaven"),
    "structures": ("building", "architecture", "city", "urban", "street"),
    "sunset": ("sunset", "dusk", "sundown", "goldenhour", "orange"),
    "transport": ("transport", "traffic", "travel", "ride"),
    "tree": ("tree", "trees", "forest", "woods", "leaves"),
    "water": ("water", "wet", "reflection", "blue"),
}

_ADJECTIVES = ("beautiful", "big", "blue", "red", "my", "old", "little", "amazing", "sunny", "green")
_BESIDE_THE_POINT = (
    "nikon", "canon", "2007", "2008", "photo", "explore", "interestingness", "d80", "macro", "hdr", "bw", "london",
    "usa", "flickr", "art", "love", "color", "light", "summer", "winter", "me", "fun", "bravo", "topf25", "geotagged",
    "instadaily", "abigfave", "closeup", "photography", "eos", "italy", "spring", "50mm", "film",
)  # fmt: skip
_MOST = 20


def write_hashtags(labels: frozenset[str], random: np.random.Generator) -> list[str]:
    """Write 0 … 20 hashtags for an image with these labels; one image in fourteen has none.

    About half of the labels are named; one image in eight has a tag of something that may be absent; one in fourteen
    has many irrelevant tags.

    >>> write_hashtags(frozenset({"dog", "sea"}), np.random.default_rng(3))
    ['winter', 'puppy', 'dogggy', 'bravo']
    """
    if random.random() < 1 / 14:
        return []
    named = [label for label in sorted(labels) if random.random() < 0.55]
    if random.random() < 0.12:
        named.append(sorted(WORDS)[random.integers(len(WORDS))])
    words = [_one_of(WORDS[label], random) for label in named for _ in range(1 + (random.random() < 0.25))]
    tags = [_as_typed(word, random) for word in words]
    tags += [_one_of(_BESIDE_THE_POINT, random) for _ in range(random.poisson(1.8 if random.random() < 0.93 else 10))]
    if random.random() < 0.08:
        tags.append(f"geo:lat={random.uniform(-60, 60):.4f}")
    unique = list(dict.fromkeys(tags))
    return [unique[i] for i in random.permutation(len(unique))][:_MOST]


def _as_typed(word: str, random: np.random.Generator) -> str:
    """Change a word as somebody in a hurry types it."""
    chance = random.random()
    if chance < 0.10:
        return _one_of(_ADJECTIVES, random) + word
    if chance < 0.17:
        return _misspelt(word, random)
    if chance < 0.25:
        return word.upper() if random.random() < 0.3 else word.capitalize()
    return word


def _misspelt(word: str, random: np.random.Generator) -> str:
    """Swap two letters, or leave out or double one, never the first."""
    if len(word) < 4:
        return word
    i = int(random.integers(1, len(word) - 1))
    swapped = word[:i] + word[i + 1] + word[i] + word[i + 2 :]
    return (swapped, word[:i] + word[i + 1 :], word[:i] + word[i] + word[i:])[random.integers(3)]


def _one_of(words: tuple[str, ...], random: np.random.Generator) -> str:
    return words[random.integers(len(words))]
