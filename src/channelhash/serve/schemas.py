"""Requests and responses of the HTTP API, from which its description (``/openapi.json``) is
made.
"""

from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import quote

from fastapi import UploadFile
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    FailFast,
    Field,
    Json,
    JsonValue,
    TypeAdapter,
    model_validator,
)
from pydantic.json_schema import WithJsonSchema

from channelhash.errors import InputError
from channelhash.search.browsing import date_of
from channelhash.search.checks import check_metadata
from channelhash.search.filters import quoted
from channelhash.search.hits import Hit
from channelhash.search.items import Order
from channelhash.search.store import Store
from channelhash.utils.image_files import open_image, upright_size

#: Most results of a search, nearest codes that it may rank again, items of a write, characters of a
#: text.
MOST = {"k": 1000, "rerank": 10_000, "items": 1000, "characters": 2000}


def _check_words(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty; give some words")
    return text


def _check_metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    """Refuse the path of an image, which would be opened later: only this server sets it."""
    if "image" in metadata:
        raise ValueError("image is set by the server; upload the picture to /items/image")
    return metadata


# A limit of characters also refuses half a character (a lone surrogate), which no store or
# tokenizer accepts.
Text = Annotated[str, Field(max_length=MOST["characters"])]
_Words = Annotated[Text, AfterValidator(_check_words)]
_ItemId = Annotated[Text, Field(min_length=1)]
Modality = Literal["image", "text"]
# Checked as in Python, by `items.check_metadata`: an error of a union names one of its types, which
# nobody meant.
_Value = Annotated[
    Any, WithJsonSchema(TypeAdapter(bool | int | float | str | list[str] | None).json_schema())
]
_Metadata = Annotated[dict[str, _Value], AfterValidator(_check_metadata)]
_HexCode = Annotated[
    str, Field(pattern="^([0-9a-fA-F]{2})+$", description="A packed code as hexadecimal digits.")
]
_Natural = Annotated[int, Field(ge=0)]
Count = Annotated[int, Field(ge=1, le=MOST["k"])]
# OpenAPI 3.1 says "contentMediaType", but generators of clients look for what 3.0 said.
_Picture = Annotated[
    UploadFile,
    Field(description="JPEG, PNG, WebP, GIF, BMP or TIFF.", json_schema_extra={"format": "binary"}),
]
Kind = Literal[
    "words",
    "without",
    "date",
    "place",
    "image",
    "item",
    "without_item",
    "code",
    "label",
    "folder",
    "month",
    "where",
]
# Generators of clients take each entry of "anyOf" or "oneOf" for a whole request, so neither is
# used.
_NO_QUERY: dict[str, JsonValue] = {
    "properties": {name: {"type": "null"} for name in ("text", "id", "code")}
}


def _strict(*pairs: tuple[str, str], **extra: JsonValue) -> ConfigDict:
    """Return the settings of a body in JSON, whose types are exact, with a query of which some
    pairs are no query.
    """
    refused: list[JsonValue] = [
        {"required": [*pair], "properties": {name: {"type": "string"} for name in pair}}
        for pair in pairs
    ]
    described: dict[str, JsonValue] = (
        {"allOf": [{"not": one} for one in (_NO_QUERY, *refused)]} if pairs else {}
    )
    return ConfigDict(strict=True, extra="forbid", json_schema_extra={**described, **extra})


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Narrowing(_Request):
    """Which items of the store are looked at: those that all of these select."""

    where: Text | None = Field(None, description="Filter: label = 'dog' AND year > 2015.")
    label: Annotated[list[Text], FailFast(), Field(max_length=31)] = Field(
        [], description="Items of any of these."
    )
    folder: Text | None = Field(None, description="Items whose id begins with it and a slash.")
    month: str | None = Field(
        None, pattern=r"^\d{4}(-\d\d){0,2}$", description="YYYY-MM, also YYYY or YYYY-MM-DD."
    )

    def filter_of(self, store: Store) -> str | None:
        """Return the filter of all of these together; None where there are none."""
        parts = []
        if self.label:
            parts.append(f"label IN ({', '.join(map(quoted, self.label))})")
        if self.folder:
            # 0 comes after /
            parts.append(
                f"(id >= {quoted(f'{self.folder}/')} AND id < {quoted(f'{self.folder}0')})"
            )
        if self.month:
            parts.append(store.date_filter(f"{{0}} >= '{self.month}' AND {{0}} < '{self.month}~'"))
            if not parts[-1]:
                raise InputError("month: no item of this store has a date")
        if self.where and parts:
            # alone: what is unbalanced may be balanced among the others
            store.check_filter(self.where)
            parts.append(f"({self.where})")
        return " AND ".join(parts) or self.where or None


class BrowseOptions(_Narrowing):
    """Which items are looked through, and in which order."""

    order: Order = Field(
        "newest", description="Items without a date come last, also with the oldest first."
    )
    seed: int = Field(0, ge=0, lt=2**63, description="Of the random order.")
    offset: int = Field(0, ge=0, lt=2**62, description="Items before the first that is returned.")
    limit: Count = Field(60, description="Number of items, at most.")


class SearchOptions(_Narrowing):
    """Which items are searched, and how many are returned."""

    modality: Modality | None = Field(
        None, description="Whose codes are searched; images if there are any."
    )
    k: Count = Field(10, description="Number of results; of a radius search, at most.")
    radius: _Natural | None = Field(None, description="Only items within so many bits, inclusive.")
    by: Literal["all", "image", "text", "words"] | None = Field(
        None, description="All by default, for plain words."
    )
    minus: Annotated[list[_Words], FailFast(), Field(max_length=31)] = Field(
        [], description="Unwanted words."
    )
    rerank: int = Field(
        0,
        ge=0,
        le=MOST["rerank"],
        description="Nearest codes that outputs of the query rank again.",
    )
    collapse: _Natural | None = Field(
        None, description="Fold results within so many bits of an earlier one into it."
    )
    fitting: bool = Field(
        False, description="Leave out what is less likely to answer the words, where that is known."
    )
    order: Literal["newest", "oldest"] | None = Field(
        None, description="By date instead of the best first."
    )
    offset: _Natural = Field(
        0, description="Results before the first that is returned, all of one ranking."
    )

    @model_validator(mode="after")
    def _check_page(self) -> Self:
        if self.offset + self.k > MOST["k"]:
            raise ValueError(
                f"offset and k together are more than {MOST['k']}, this server's limit"
            )
        return self


class ImageSearch(SearchOptions):
    """A picture to search with, and words beside it."""

    image: _Picture
    text: Text = Field("", description="Words that are wanted, too.")


class SearchRequest(SearchOptions):
    """The query: ``text``, ``id`` or ``code``, or ``text`` and one of the others, which are then
    added up.
    """

    model_config = _strict(
        ("id", "code"),
        examples=[{"text": "a dog on a beach -people", "k": 5}, {"id": "17", "text": "at night"}],
    )

    text: _Words | None = Field(
        None, description='"two dogs"^2 is a phrase that counts twice, -people is not wanted.'
    )
    id: Text | None = Field(None, description="An item of the store; its own code is the query.")
    query_modality: Modality | None = Field(
        None, description="Which code of the item; that of ``modality`` if any."
    )
    code: _HexCode | None = None
    exclude_self: bool = Field(
        False, description="Leave the item ``id`` out; with collapse, its near-duplicates, too."
    )
    minus_ids: Annotated[list[Text], FailFast(), Field(max_length=31)] = Field(
        [], description="Unwanted items."
    )

    @model_validator(mode="after")
    def _check_query(self) -> Self:
        if self.text is None and self.id is None and self.code is None:
            raise ValueError("give text, id or code: what to search for")
        if self.id is not None and self.code is not None:
            raise ValueError("id and code are two queries; give one of them, or one with text")
        for key in ("query_modality", "exclude_self"):
            if getattr(self, key) and self.id is None:
                raise ValueError(f"{key}: belongs to the item that asks; give it with id")
        return self


class _BrowsedItem(BaseModel):
    """One item without its codes."""

    date: str = Field(
        "", description="YYYY-MM-DD hh:mm:ss or a beginning of that; empty if unknown."
    )
    width: int | None = Field(None, description="Pixels of the upright picture; null without one.")
    height: int | None = None
    id: str
    text: str
    labels: list[str]
    image: str = Field(
        description="Address of its thumbnail relative to the API's root, empty without a picture."
    )
    metadata: dict[str, Any]

    @classmethod
    def of(cls, hit: Hit, **codes: Any) -> Self:
        """Describe an item, or what a search found.

        >>> _BrowsedItem.of(Hit("a/1", None, "", ["dog"], "photos/1.jpg", {"taken": "2019-07-14"})).image
        'images/a%2F1'
        """
        values = (
            hit.as_dict()
            | _describe_image(hit)
            | {"code": hit.code.tobytes().hex(), "quote": hit.quote}
        )
        return cls(**values, modalities=list(hit.modalities), **codes)


class Result(_BrowsedItem):
    """One result of a search."""

    distance: int | None = Field(
        description="Bits in which its code differs; null where words alone were asked for."
    )
    code: str = Field(description="Its code of the searched modality.")
    modalities: list[str] = Field(description="The modalities of its codes.")
    match: float | None = Field(
        None, description="Of random items, the share at least as near; null if unknown."
    )
    fit: float | None = Field(
        None,
        description=(
            "Probability that it answers the words; below 0.5 it is less likely to. Null if "
            "unknown."
        ),
    )
    duplicates: list[str] | None = Field(
        None, description="With collapse, the ids of results folded into this one."
    )
    quote: str = Field("", description="Lines of the text in its picture that hold the words.")


class Understood(BaseModel):
    """One part of what was asked."""

    kind: Kind
    value: str = Field(
        description="The words, id, code, name or filter; empty for an uploaded picture."
    )
    weight: float = Field(1.0, description="How much words count beside other parts.")
    means: str = Field("", description="What dates and places in the words narrow the search to.")


class SearchResponse(BaseModel):
    """The results of a search, best first."""

    query_code: str = Field(description="Empty where words alone were asked for.")
    query_modality: str = Field(
        description="Modality of the query's code; empty if the query was a bare code."
    )
    modality: str
    n_bits: int
    results: list[Result]
    close: bool | None = Field(
        None, description="Whether the first are as near as to items' own; null if unknown."
    )
    offset: int = 0
    understood: list[Understood] = Field([], description="What was asked, part by part.")
    duplicates: list[str] | None = Field(
        None, description="With exclude_self and collapse: of the item itself."
    )
    note: str = Field(
        "",
        description="What the query could not be compared with, and what to do; empty if nothing.",
    )
    unlikely: bool = Field(
        False, description="With fitting: whether answers that are less likely were left out."
    )
    did_you_mean: str = Field(
        "", description="The question with known words for unknown ones, if it finds better."
    )
    seconds: float = Field(description="Time from the request's arrival to its response.")


class CopyFacts(BaseModel):
    """Sizes, 0 if unknown, and date of one of several copies."""

    model_config = ConfigDict(from_attributes=True)  # those of a `Photo`

    width: int
    height: int
    bytes: int = Field(validation_alias="size")
    date: str


_Group = Annotated[list[_ItemId], Field(min_length=1, max_length=MOST["items"])]


class NewDecision(_Request):
    """What to keep about a group: that its items are different, or that all stay."""

    kind: Literal["different", "keep"]
    ids: _Group


class NewMove(_Request):
    """Copies to move, of a picture that stays."""

    keeper: _ItemId
    ids: _Group
    dry_run: bool = Field(True, description="Only say what would be moved.")


class Decided(BaseModel):
    """What was moved, would be moved, or was taken back."""

    kind: Literal["different", "keep", "move"]
    ids: list[str] = Field(description="The items whose files were moved.")
    problems: list[str] = Field(description="A line for each that stays.")
    folder: str = Field("", description="Name of the folder, beside that of all pictures.")


class DuplicatesResponse(BaseModel):
    """Groups of near-duplicates, the largest first, equally large ones by their first id."""

    groups: list[list[str]] = Field(
        description="The ids of each group, sorted; of a large one, the first of them."
    )
    distances: list[list[int]] = Field(
        description="Of each of them, the bits in which it differs from the first."
    )
    photos: list[list[CopyFacts]] = Field(description="What is known of each of them.")
    keepers: list[str] = Field(
        description="Of each group, the id of the one that is proposed to be kept."
    )
    reasons: list[str] = Field(description="Why, such as: most pixels, sharpest.")
    sizes: list[int] = Field(description="Number of items of each group.")
    found: int = Field(description="Number of groups, also of those left out.")
    modality: str
    radius: int | None = Field(description="The radius of the request.")
    seconds: float = Field(description="Time from the request's arrival to its response.")


class ExplainItem(_Request):
    """One item of a pair: exactly one of ``text``, ``id`` and ``code``."""

    model_config = _strict(("text", "id"), ("text", "code"), ("id", "code"))

    text: _Words | None = Field(None, description="Words.")
    id: Text | None = Field(None, description="An item that is in the store.")
    code: _HexCode | None = None
    modality: Modality | None = Field(
        None, description="Of the item's code or of the bare code; image if any."
    )

    @model_validator(mode="after")
    def _check_item(self) -> Self:
        keys = [key for key in ("text", "id", "code") if getattr(self, key) is not None]
        if len(keys) != 1:
            raise ValueError(
                f"give exactly one of text, id and code, not {' and '.join(keys) or 'none'}"
            )
        if self.text is not None and self.modality == "image":
            raise ValueError("a text has the modality text; leave it out")
        return self


class MapOptions(_Request):
    """How parts of a picture are hidden."""

    maps: bool = Field(True, description="Hide parts of pictures, and leave out words.")
    cells: int = Field(8, ge=1, le=32, description="Cells along the short side.")
    patch: int = Field(
        2,
        ge=1,
        le=32,
        description="Side of the patch in cells, at most ``cells``; it moves by one.",
    )
    fill: Literal["grey", "blur"] = Field("grey", description="What the patch shows.")


class ImageExplanation(MapOptions):
    """A picture, and the item of the store that it is compared with."""

    image: _Picture
    id: _ItemId
    modality: Modality | None = Field(None, description="Which of the item's codes.")


class ExplainRequest(MapOptions):
    """A pair, and how its parts are hidden."""

    model_config = _strict(
        examples=[{"first": {"text": "a dog on a beach"}, "second": {"id": "17"}}]
    )

    first: ExplainItem
    second: ExplainItem


class ExplainResponse(BaseModel):
    """Why two codes are as near as they are."""

    n_bits: int
    distance: int
    relaxed_distance: float
    summary: str
    labels: list[dict[str, Any]] = Field(
        description="The labels that the agreeing bits speak for, with their weights."
    )
    bits: list[dict[str, Any]] = Field(
        description=(
            "Each bit with both values and strengths, its share of the cosine, and the labels "
            "that go with it."
        )
    )
    sides: list[dict[str, Any]] = Field(
        description="Each item with the map of its picture or the influence of words."
    )
    remarks: list[str] = Field(description="What could not be done, a line each.")
    seconds: float


class ItemResponse(_BrowsedItem):
    """One item as it is stored."""

    codes: dict[str, str]


class BrowsedItems(BaseModel):
    """Some of the items that a request selects."""

    total: int = Field(description="Number of items that it selects.")
    offset: int
    items: list[_BrowsedItem]

    @classmethod
    def of(cls, hits: list[Hit], total: int, offset: int) -> Self:
        """Describe items, of ``total``, that begin with number ``offset``."""
        return cls(total=total, offset=offset, items=[_BrowsedItem.of(hit) for hit in hits])


class Facet(BaseModel):
    """A label, a folder, a month, a camera or a place, and how many items are of it."""

    name: str
    count: int


class Facets(BaseModel):
    """What the items of the store can be narrowed by."""

    labels: list[Facet] = Field(description="Most frequent first.")
    folders: list[Facet] = Field(description="By name; of what lies below them, too.")
    months: list[Facet] = Field(description="YYYY-MM, newest first; of dates that are stored.")
    cameras: list[Facet] = Field(description="Of the key camera of metadata, most frequent first.")
    places: list[Facet] = Field(description="Of the key place of metadata, most frequent first.")


class NewItem(_Request):
    """An item to add: with a text, which the model encodes, or with codes made by the store's
    model.
    """

    model_config = _strict()

    id: _ItemId
    text: _Words | None = None
    codes: dict[Modality, _HexCode] = {}
    metadata: _Metadata = {}

    @model_validator(mode="after")
    def _check_content(self) -> Self:
        if self.text is None and not self.codes:
            raise ValueError(f"{self.id!r} has neither a text nor codes")
        check_metadata([self.metadata], [self.id])
        return self


class NewItems(_Request):
    """Items to add, all of them or none; each has codes of the same modalities."""

    model_config = _strict(
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


class NewImage(_Request):
    """An item to add by its picture."""

    id: _ItemId
    image: _Picture
    text: _Words | None = Field(None, description="Encoded as well, and shown.")
    # Generators of clients take a string with a "contentMediaType" for a file.
    metadata: Annotated[Json[_Metadata], WithJsonSchema({"type": "string"})] = Field(
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


class Indexing(BaseModel):
    """How far the server is that indexes what is new in its folder."""

    stage: str = Field(
        description="``encode`` while photographs are read, of which ``done`` are in the store."
    )
    done: int
    total: int


class Info(BaseModel):
    """The store of this server, and its limits."""

    items: int
    n_bits: int | None
    codes: dict[str, int] = Field(description="Number of codes by modality.")
    model: str = Field(
        description="Fingerprint of the model whose codes are stored, empty if unknown."
    )
    asks: list[str] = Field(
        description="Modalities of queries that can be encoded; both while the model loads."
    )
    words_alone: bool = Field(
        description="Whether a text, which it cannot encode, is looked for by its words."
    )
    writable: bool
    loading: list[str] = Field(
        [], description="What is not ready yet and makes the first requests slower, in words."
    )
    version: int = Field(description="Another number after each write.")
    indexing: Indexing | None = Field(description="The indexing that is under way.")
    problem: str = Field(
        description="Why the folder could not be indexed the last time, empty if it could."
    )
    local: bool = Field(description="Whether ``/reveal`` answers this client.")
    limits: dict[str, int]


class Reveal(_Request):
    """An item whose picture is to be found in its folder."""

    id: Text
    show: bool = Field(
        False, description="Also show the file in its folder, in a window of this machine."
    )


class Health(BaseModel):
    """The state of a working server."""

    status: Literal["ok"]
    items: int


class Problem(BaseModel):
    """The reason why a request was refused, in one line."""

    error: str


def _describe_image(hit: Hit) -> dict[str, Any]:
    """Return an item's date, the address of its image, and its size: as it is stored, or else as
    its file has it.
    """
    described = {"date": date_of(hit.metadata), "image": ""}
    if not hit.image:
        return described
    width, height = hit.metadata.get("width"), hit.metadata.get("height")
    if not (isinstance(width, int) and isinstance(height, int)):
        try:
            width, height = _size(hit.image, Path(hit.image).stat().st_mtime_ns)
        except OSError:
            width = height = None
    return described | {
        "image": f"images/{quote(hit.id, safe='')}",
        "width": width,
        "height": height,
    }


@lru_cache(1 << 16)  # of pictures whose size the store does not know
def _size(path: str, _changed: int) -> tuple[int, int]:
    with open_image(path) as opened:
        return upright_size(opened)
