"""What the store of a folder of photographs was made of, kept with it so that it can be brought up to date."""

import os
from dataclasses import dataclass
from pathlib import Path

from channelhash.errors import InputError
from channelhash.search.local.folder import StoreFolder
from channelhash.utils.files import dump_checked, load_checked, write_text


@dataclass(frozen=True)
class PhotoSource:
    """A folder of photographs and how it is read.

    Attributes:
        folder: the photographs, at any depth.
        captions: file of their captions, see `source.read_source`.
        exclude: patterns of the files that are left out.

    >>> PhotoSource(Path("photos")).captions is None
    True
    """

    folder: Path
    captions: Path | None = None
    exclude: tuple[str, ...] = ()


def write_photo_source(store: Path, source: PhotoSource) -> None:
    """Keep with a store what it was made of.

    Paths are kept relative to a store that lies in its photographs' folder, so that both can be moved together.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as photos:
    ...     store = Path(photos, ".channelhash")
    ...     store.mkdir()
    ...     write_photo_source(store, PhotoSource(Path(photos), exclude=("*.png",)))
    ...     read_photo_source(store).exclude
    ('*.png',)
    """
    home, folder = store.resolve(), source.folder.resolve()
    inside = home.is_relative_to(folder)

    def kept(path: Path) -> str:
        absolute = path.resolve()
        return os.path.relpath(absolute, home) if inside and absolute.is_relative_to(folder) else str(absolute)

    captions = None if source.captions is None else kept(source.captions)
    values = {"folder": kept(source.folder), "captions": captions, "exclude": list(source.exclude)}
    write_text(StoreFolder(store).source, dump_checked(values))


def read_photo_source(store: Path) -> PhotoSource | None:
    """Return what `write_photo_source` kept, or None if it was never called.

    Raises:
        InputError: the file is damaged.
    """
    file = StoreFolder(store).source
    try:
        values = load_checked(file.read_text(encoding="utf-8"))
        folder, captions, exclude = (values[name] for name in ("folder", "captions", "exclude"))
        home = store.resolve()
        return PhotoSource(
            Path(os.path.normpath(home / folder)),
            None if captions is None else Path(os.path.normpath(home / captions)),
            tuple(map(str, exclude)),
        )
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InputError(
            f"{file}: is damaged; remove it, and name folder, captions and exclusions anew: "
            f"`channelhash index add {store} PHOTOS`"
        ) from None
