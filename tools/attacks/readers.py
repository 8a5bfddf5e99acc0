"""Functions of the public API that read a file which no quick command reads."""

from pathlib import Path

from PIL import Image


def onnx_features(file: str) -> None:
    """Compute features of an image with the network in an ONNX file."""
    from channelhash.models.extractors import Extractor

    Extractor(f"onnx:{file}?pixels=unit", "image", 3)([Image.new("RGB", (9, 8))])


def unpacked(file: str) -> None:
    """Unpack an archive into the current folder."""
    from channelhash.data.archives import unpack

    unpack(Path(file), Path("out"))


def read_configuration(file: str) -> None:
    """Read a configuration and write it out again."""
    from channelhash.config import read_config

    read_config(Path(file)).to_yaml()


def override_configuration(file: str, setting: str) -> None:
    """Read a configuration with one key set as by ``--set``."""
    from channelhash.config import read_config

    read_config(Path(file), [setting]).to_yaml()


def read_word_vectors(file: str) -> None:
    """Convert word vectors, and look a word up."""
    from channelhash.text.word_vectors import open_word_vectors

    open_word_vectors(Path(file), Path("cache")).row("word1")
