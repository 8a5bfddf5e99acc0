"""Records into sets of codes."""

from collections.abc import Mapping

from channelhash.codeset import CodeSet
from channelhash.data.records import Items, Records
from channelhash.environment import usable_cores
from channelhash.models.hash_model import HashModel, Progress
from channelhash.training.frozen_features import encode_items


def encode_records(
    model: HashModel,
    records: Records,
    progress: Progress | None = None,
    fingerprint: str | None = None,
    features: Mapping[str, Items] | None = None,
) -> CodeSet:
    """Codes of every modality that both the model and the records have, with labels, texts and picture paths.

    Args:
        model: encodes.
        records: what is encoded.
        progress: called with (done, n) for each modality in turn.
        fingerprint: the model's, where it is known.
        features: modality -> features of the same rows, for a model that takes those instead of raw items.
    """
    read = dict(records.items) | dict(features or {})
    modalities = [modality for modality in model.modalities if modality in records.items]
    return CodeSet(
        records.ids,
        {modality: encode_items(model, modality, read[modality], usable_cores(), progress) for modality in modalities},
        records.labels if records.label_names else None,
        model.n_bits,
        label_names=records.label_names,
        texts=records.to_show("text"),
        images=records.to_show("image"),
        model=model.fingerprint() if fingerprint is None else fingerprint,
    )
