"""Whether a picture file can be used."""

from pathlib import Path

from PIL import Image


def picture_problem(path: Path, decode: bool = True) -> str | None:
    """What is wrong with a picture file in a few words that name it, or None.

    Args:
        path: the file.
        decode: decode it whole; otherwise only look whether it is a file with content.
    """
    if not path.is_file():
        return f"no such picture {path}"
    if path.stat().st_size == 0:
        return f"empty picture {path}"
    if not decode:
        return None
    try:
        with Image.open(path) as picture:
            picture.load()
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        return f"unreadable picture {path} ({error})"
    return None
