"""Whether a folder of photographs lies in its store as it is: said without the model that would encode what is new."""

from contextlib import closing
from pathlib import Path

from channelhash.indexing.photo_source import read_photo_source
from channelhash.indexing.source import read_source, with_modalities
from channelhash.indexing.state import find_changes
from channelhash.models.description import read_description
from channelhash.search import open_store
from channelhash.search.photo_folders import find_store
from channelhash.utils.progress import StageProgress, no_stage_progress


def is_unchanged(folder: Path, progress: StageProgress = no_stage_progress) -> bool:
    """Return whether the store of a plain folder has all of its photographs as they are, and none that are gone.

    Only of a store with fitted codes this is known without the model. Where images alone were moved with their folder,
    the store is updated, see `find_changes`.

    Args:
        folder: a plain folder.
        progress: stage -> its callback.

    Raises:
        InputError: the store or its model's description is damaged, or a file of captions is.
    """
    place = find_store(folder)
    kept = None if place is None else read_photo_source(place)
    if place is None or kept is None or kept.folder.resolve() != folder.resolve():
        return False
    config = place / "model" / "config.json"
    description = read_description(config) if config.exists() else {}
    if description.get("name") != "fitted":
        return False
    source = read_source(kept.folder, None, kept.exclude, kept.captions)
    with closing(open_store(folder)) as store:
        changes = find_changes(
            store, with_modalities(source, list(description["architecture"]["widths"])), progress("look")
        )
    return not changes.todo and not changes.gone
