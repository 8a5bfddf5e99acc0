"""Whether a folder of photographs lies in its store as it is, as far as that is known without the model."""

from contextlib import closing
from pathlib import Path

from channelhash.indexing.indexed import Indexed
from channelhash.indexing.photo_source import read_photo_source
from channelhash.indexing.source import read_source, with_modalities
from channelhash.indexing.state import find_changes
from channelhash.models.description import read_description
from channelhash.search import open_store
from channelhash.search.photo_folders import find_store
from channelhash.utils.progress import StageProgress, no_stage_progress


def find_unchanged(folder: Path, progress: StageProgress = no_stage_progress) -> Indexed | None:
    """Return what the store of a plain folder has if these are all of its photographs as they are; else None.

    Known only for a store with fitted codes. Photographs that could not be read and have not changed since are listed
    as problems. Where images alone were moved with their folder, the store is updated, see `find_changes`.

    Args:
        folder: a plain folder.
        progress: stage -> its callback.

    Raises:
        InputError: the store or its model's description is damaged, or a file of captions is.
    """
    place = find_store(folder)
    kept = None if place is None else read_photo_source(place)
    if place is None or kept is None or kept.folder.resolve() != folder.resolve():
        return None
    config = place / "model" / "config.json"
    description = read_description(config) if config.exists() else {}
    if description.get("name") != "fitted":
        return None
    source = read_source(kept.folder, None, kept.exclude, kept.captions)
    with closing(open_store(folder)) as store:
        changes = find_changes(
            store, with_modalities(source, list(description["architecture"]["widths"])), progress("look")
        )
        if not changes.is_empty:
            return None
        problems = (*source.records.problems, *changes.problems)
        return Indexed(
            unchanged=len(source.records) - len(changes.problems),
            problems=problems,
            items=len(store),
            skipped=source.records.removed,
        )
