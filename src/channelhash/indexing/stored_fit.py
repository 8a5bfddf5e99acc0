"""How the codes of a store were fitted, as its model says."""

from channelhash.models.description import fit_facts, read_description
from channelhash.search.store import Store


def fit_of(store: Store) -> dict[str, str]:
    """Return the encoder of a store and how its codes were fitted, see `fit_facts`; of other stores, nothing."""
    description = None if store.model_folder is None else store.model_folder / "model" / "config.json"
    return fit_facts(read_description(description)) if description is not None and description.exists() else {}
