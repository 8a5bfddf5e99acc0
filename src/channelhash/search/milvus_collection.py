"""A collection of Milvus as a store makes it, and what it says of itself."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from channelhash.errors import InputError
from channelhash.search.milvus_address import Index
from channelhash.search.milvus_rows import MAX_LABELS, MAX_STRING

_FORMAT = "channelhash milvus 1"


@dataclass(frozen=True)
class CollectionFacts:
    """What all codes of a collection have in common; kept as its description.

    Attributes:
        n_bits: code length.
        model: fingerprint of their model, empty if unknown.
        index: how they are indexed.
    """

    n_bits: int
    model: str
    index: Index


def create_collection(
    client: Any, name: str, modalities: Sequence[str], facts: CollectionFacts, scalar_indexes: bool
) -> None:
    """Make an empty collection whose rows are as `milvus_rows` describes them.

    Args:
        client: a `pymilvus.MilvusClient`.
        name: of the collection.
        modalities: what it has fields for.
        facts: its description.
        scalar_indexes: whether what filters ask for is indexed too; milvus-lite cannot.
    """
    from pymilvus import DataType

    description = json.dumps({"format": _FORMAT, **asdict(facts)})
    schema = client.create_schema(auto_id=False, enable_dynamic_field=False, description=description)
    schema.add_field("id", DataType.VARCHAR, is_primary=True, max_length=MAX_STRING)
    schema.add_field("keys", DataType.VARCHAR, max_length=MAX_STRING)
    schema.add_field(
        "labels", DataType.ARRAY, element_type=DataType.VARCHAR, max_capacity=MAX_LABELS, max_length=MAX_STRING
    )
    schema.add_field("metadata", DataType.JSON)
    indexes = client.prepare_index_params()
    build = {"nlist": facts.index.n_lists} if facts.index.kind == "BIN_IVF_FLAT" else {}
    for modality in modalities:
        schema.add_field(f"has_{modality}", DataType.BOOL)
        # Milvus counts in whole bytes; the padding bits of packed codes are 0 and change no distance.
        schema.add_field(f"code_{modality}", DataType.BINARY_VECTOR, dim=8 * -(-facts.n_bits // 8))
        indexes.add_index(f"code_{modality}", index_type=facts.index.kind, metric_type="HAMMING", params=build)
    if scalar_indexes:
        for field in ("keys", "labels"):
            indexes.add_index(field, index_type="INVERTED")
    client.create_collection(name, schema=schema, index_params=indexes, consistency_level="Strong", timeout=60)


def read_description(address: str, described: Mapping[str, Any]) -> tuple[CollectionFacts, tuple[str, ...]]:
    """The facts of a collection, and the modalities that it has fields for, from pymilvus's description of it.

    Raises:
        InputError: it was not made by `create_collection`, or by another version of it.
    """
    try:
        stored = json.loads(described["description"])
        written_as = stored["format"]
        facts = CollectionFacts(int(stored["n_bits"]), str(stored["model"]), Index(**stored["index"]))
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{address}: the collection was not made by channelhash; choose another one") from None
    if written_as != _FORMAT:
        raise InputError(f"{address}: written as {written_as!r}, this version reads {_FORMAT!r}; push the items again")
    names = [field["name"] for field in described["fields"]]
    return facts, tuple(name.removeprefix("code_") for name in names if name.startswith("code_"))
