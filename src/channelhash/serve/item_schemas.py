"""Requests and responses of the routes of items: browsing, writing, duplicates."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, FailFast, Field, Json, model_validator
from pydantic.json_schema import WithJsonSchema

from channelhash.duplicates import DuplicateGroup
from channelhash.search.browsing import date_of
from channelhash.search.checks import check_metadata
from channelhash.search.hits import Hit
from channelhash.search.items import Order
from channelhash.serve.fields import (
    MOST,
    HexCode,
    ItemId,
    Modality,
    Narrowing,
    NewMetadata,
    NonEmptyText,
    PageSize,
    RequestModel,
    Text,
    Upload,
    json_body,
)
from channelhash.utils.image_files import open_image, upright_size

#: Items of one group that a response has: enough to look at.
_SHOWN = 100


class BrowseOptions(Narrowing):
    """Which items are listed, and in which order."""

    order: Order = Field(
        "newest", description="Items without a date come last, whether newest or oldest come first."
    )
    seed: int = Field(0, ge=0, lt=2**63, description="Seed of the random order.")
    offset: int = Field(0, ge=0, lt=2**62, description="Number of items to pass over.")
    limit: PageSize = Field(60, description="Number of items, at most.")


class BrowsedItem(BaseModel):
    """One item without its codes."""

    date: str = Field(
        "", description="YYYY-MM-DD hh:mm:ss or the beginning of it; empty if unknown."
    )
    width: int | None = Field(None, description="Pixels of the upright image; null without one.")
    height: int | None = None
    id: str
    text: str
    labels: list[str]
    image: str = Field(
        description="Address of its thumbnail, relative to the API's root; empty without an image."
    )
    metadata: dict[str, Any]

    @classmethod
    def of(cls, hit: Hit, **codes: Any) -> Self:
        """Describe an item, or what a search found.

        >>> BrowsedItem.of(Hit("a/1", None, "", ["dog"], "photos/1.jpg", {})).image
        'images/a%2F1'
        """
        values = (
            hit.as_dict()
            | _describe_image(hit)
            | {"code": hit.code.tobytes().hex(), "quote": hit.quote}
        )
        return cls(**values, modalities=list(hit.modalities), **codes)


class ItemResponse(BrowsedItem):
    """One item as it is stored."""

    codes: dict[str, str]


class BrowsedItems(BaseModel):
    """Some of the items that a request selects."""

    total: int = Field(description="Number of items that the request selects.")
    offset: int
    items: list[BrowsedItem]

    @classmethod
    def of(cls, hits: list[Hit], total: int, offset: int) -> Self:
        """Describe some of ``total`` items, from number ``offset`` on."""
        return cls(total=total, offset=offset, items=[BrowsedItem.of(hit) for hit in hits])


class Facet(BaseModel):
    """A label, a folder, a month, a camera or a place, and how many items have it."""

    name: str
    count: int

    @classmethod
    def list_of(cls, counts: Mapping[str, int]) -> list[Self]:
        """Describe names with their numbers of items."""
        return [cls(name=name, count=count) for name, count in counts.items()]


class Facets(BaseModel):
    """What the items of the store can be narrowed by."""

    labels: list[Facet] = Field(description="Most frequent first.")
    folders: list[Facet] = Field(description="By name; each counts what lies below it, too.")
    months: list[Facet] = Field(description="YYYY-MM, newest first; of the dates in metadata.")
    cameras: list[Facet] = Field(
        description="Values of the metadata key camera, most frequent first."
    )
    places: list[Facet] = Field(
        description="Values of the metadata key place, most frequent first."
    )


class NewItem(RequestModel):
    """An item to add: with a text, which the model encodes, or with codes of the store's model."""

    model_config = json_body()

    id: ItemId
    text: NonEmptyText | None = None
    codes: dict[Modality, HexCode] = Field({})
    metadata: NewMetadata = Field({})

    @model_validator(mode="after")
    def _check_content(self) -> Self:
        if self.text is None and not self.codes:
            raise ValueError(f"{self.id!r} has neither a text nor codes")
        check_metadata([self.metadata], [self.id])
        return self


class NewItems(RequestModel):
    """Items to add, all of them or none; each has codes of the same modalities."""

    model_config = json_body(
        examples=[
            {
                "items": [
                    {"id": "17", "text": "a dog", "metadata": {"year": 2020, "labels": ["dog"]}}
                ]
            }
        ]
    )

    items: Annotated[list[NewItem], FailFast(), Field(min_length=1, max_length=MOST["items"])]
    replace: bool = Field(False, description="Replace codes that an item already has.")


class NewImage(RequestModel):
    """An item to add by its image."""

    id: ItemId
    image: Upload
    text: NonEmptyText | None = Field(None, description="A text, which is encoded and shown, too.")
    # Generators of clients take a string with a "contentMediaType" for a file.
    metadata: Annotated[Json[NewMetadata], WithJsonSchema({"type": "string"})] = Field(
        "{}", validate_default=True, description='A JSON object: {"labels": ["dog"]}.'
    )
    replace: bool = Field(False, description="Replace codes that an item already has.")

    @model_validator(mode="after")
    def _check_values(self) -> Self:
        check_metadata([self.metadata], [self.id])
        return self


class WriteResponse(BaseModel):
    """The number of items that were written or removed."""

    items: int


class Labels(BaseModel):
    """Label -> number of items with it, most frequent first."""

    labels: dict[str, int]


class Reveal(RequestModel):
    """An item whose image is to be found in its folder."""

    id: Text
    show: bool = Field(
        False, description="Also show the file in its folder, in a window of this machine."
    )


class CopyFacts(BaseModel):
    """The sizes of one of several copies, 0 if unknown, and its date."""

    model_config = ConfigDict(from_attributes=True)  # those of a `Photo`

    width: int
    height: int
    bytes: int = Field(validation_alias="size")
    date: str


_GroupIds = Annotated[list[ItemId], Field(min_length=1, max_length=MOST["items"])]


class NewDecision(RequestModel):
    """What to remember about a group: that its items are different, or that all stay."""

    kind: Literal["different", "keep"]
    ids: _GroupIds


class NewMove(RequestModel):
    """Copies to move, and the item whose image stays."""

    keeper: ItemId
    ids: _GroupIds
    dry_run: bool = Field(True, description="Only say what would be moved.")


class Decided(BaseModel):
    """What was moved, would be moved, or was taken back."""

    kind: Literal["different", "keep", "move"]
    ids: list[str] = Field(description="The items whose files were moved.")
    problems: list[str] = Field(description="A line for each item that stays.")
    folder: str = Field(
        "", description="Name of the folder of the copies, beside that of all images."
    )


class DuplicatesResponse(BaseModel):
    """Groups of near-duplicates, the largest first; groups of one size by their first id."""

    groups: list[list[str]] = Field(
        description="The ids of each group, that of the keeper first; only some of a large group."
    )
    distances: list[list[int]] = Field(
        description="For each of these items, the bits in which it differs from the first."
    )
    photos: list[list[CopyFacts]] = Field(description="What is known of each of these items.")
    keepers: list[str] = Field(
        description="For each group, the id of the item that should be kept."
    )
    reasons: list[str] = Field(description="Why that one, such as: most pixels, sharpest.")
    unsure: list[list[str]] = Field(
        description="For each group, the ids of those that may be the original instead, or are no "
        "copies of it themselves."
    )
    sizes: list[int] = Field(description="Number of items of each group.")
    bytes: int = Field(
        description="Bytes of all files but the keepers', including those of groups left out."
    )
    found: int = Field(description="Number of groups, including those left out.")
    modality: str
    radius: int | None = Field(description="The radius of the request.")
    seconds: float = Field(description="Time from the request's arrival to its response.")

    @classmethod
    def of(cls, groups: Sequence[DuplicateGroup], **others: Any) -> Self:
        """Describe groups, each by its first items."""
        return cls(
            groups=[group.ids[:_SHOWN] for group in groups],
            distances=[group.distances[:_SHOWN] for group in groups],
            photos=[group.photos[:_SHOWN] for group in groups],
            keepers=[group.keeper for group in groups],
            reasons=[group.reason for group in groups],
            unsure=[group.unsure for group in groups],
            sizes=[len(group.ids) for group in groups],
            **others,
        )


def _describe_image(hit: Hit) -> dict[str, Any]:
    """Return an item's date, and the address and the size of its image. A size that the store does
    not know is read from the file.
    """
    described = {"date": date_of(hit.metadata), "image": ""}
    if not hit.image:
        return described
    width = hit.metadata.get("width")
    height = hit.metadata.get("height")
    if not (isinstance(width, int) and isinstance(height, int)):
        try:
            width, height = _size(hit.image, Path(hit.image).stat().st_mtime_ns)
        except OSError:
            width = height = None
    image = f"images/{quote(hit.id, safe='')}"
    return described | {"image": image, "width": width, "height": height}


@lru_cache(1 << 16)  # images whose size the store does not know
def _size(path: str, _changed: int) -> tuple[int, int]:
    with open_image(path) as opened:
        return upright_size(opened)
