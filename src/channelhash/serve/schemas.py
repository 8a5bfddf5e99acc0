"""Requests and responses of the HTTP API, from which its description (``/openapi.json``) is made."""

from itertools import combinations
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, FailFast, Field, JsonValue

from channelhash.search.catalogue import Order


def _check_characters(text: str) -> str:
    """Check that the text has no lone surrogates, which JSON can express but no store or tokenizer accepts."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("holds half a character (a lone surrogate)") from None
    return text


Text = Annotated[str, AfterValidator(_check_characters)]
Modality = Literal["image", "text"]
Metadata = dict[str, bool | int | Annotated[float, Field(allow_inf_nan=False)] | str | list[str] | None]
HexCode = Annotated[str, Field(pattern="^([0-9a-fA-F]{2})+$", description="A packed code as hexadecimal digits.")]
Count = Annotated[int, Field(ge=1, strict=True)]
Natural = Annotated[int, Field(ge=0, strict=True)]
#: A month, a year or a day.
MONTH = r"^\d{4}(-\d\d){0,2}$"


_QUERIES = ("text", "id", "code")
# Generators of clients take each entry of "anyOf" or "oneOf" for a whole request, so neither is used.
#: Not all of text, id and code are left out or null.
_ANY_QUERY: dict[str, JsonValue] = {"not": {"properties": {name: {"type": "null"} for name in _QUERIES}}}
_TWO_QUERIES: list[JsonValue] = [
    {"not": {"required": [*pair], "properties": {name: {"type": "string"} for name in pair}}}
    for pair in combinations(_QUERIES, 2)
]
#: Nor are two of them strings.
_ONE_QUERY: dict[str, JsonValue] = {"allOf": [_ANY_QUERY, *_TWO_QUERIES]}


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Narrowing(_Request):
    """Which items of the store are looked at: those that all of these select."""

    where: Text | None = Field(None, description="Filter: label = 'dog' AND year > 2015.")
    label: Annotated[list[Text], FailFast(), Field(max_length=31)] = Field([], description="Items of any of these.")
    folder: Text | None = Field(None, description="Items whose id begins with it and a slash.")
    month: str | None = Field(None, pattern=MONTH, description="Items dated YYYY-MM; also YYYY or YYYY-MM-DD.")


class BrowseOptions(Narrowing):
    """Which items are looked through, and in which order."""

    order: Order = Field("newest", description="Items without a date come last, also with the oldest first.")
    seed: int = Field(0, ge=0, lt=2**63, description="Of the random order.")
    offset: int = Field(0, ge=0, lt=2**62, description="Items before the first that is returned.")
    limit: int = Field(60, ge=1, description="Number of items, at most, and at most the limit k of GET /info.")


class SearchOptions(Narrowing):
    """Which items are searched, and how many are returned."""

    modality: Modality | None = Field(None, description="Whose codes are searched; images if there are any.")
    k: Count = Field(10, description="Number of results; of a radius search, at most.")
    radius: Natural | None = Field(None, description="Only items within so many bits, inclusive.")
    by: Literal["all", "image", "text", "words"] | None = Field(
        None,
        description="What is searched: codes of images or texts, words, or all there is. By default all for a query"
        " with words that names no modality, radius or rerank; else the codes of one modality.",
    )
    minus: Annotated[list[Annotated[Text, Field(min_length=1)]], FailFast(), Field(max_length=31)] = Field(
        [], description="Words that are not wanted."
    )
    rerank: Natural = Field(
        0, description="Nearest codes that are ranked again by the query's real-valued outputs; 0 for none."
    )
    collapse: Natural | None = Field(None, description="Fold results within so many bits of an earlier one into it.")
    offset: Natural = Field(0, description="Results before the first that is returned, all of one ranking.")


class SearchRequest(SearchOptions):
    """The query: at least one of ``text``, ``id`` and ``code``, which are added up where there are several."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            **_ANY_QUERY,
            "examples": [{"text": "a dog on a beach -people", "k": 5}, {"id": "17", "text": "at night"}],
        },
    )

    text: Text | None = Field(
        None, description='Words, in parts: "two dogs"^2 is a phrase that counts twice, -people is not wanted.'
    )
    id: Text | None = Field(None, description="An item of the store; its own code is the query.")
    query_modality: Modality | None = Field(
        None, description="Which of an item's codes is the query; the searched modality's if it has one."
    )
    code: HexCode | None = None
    exclude_self: bool = Field(
        False, strict=True, description="Leave the item ``id`` out; with collapse, its near-duplicates, too."
    )
    minus_ids: Annotated[list[Text], FailFast(), Field(max_length=31)] = Field(
        [], description="Items of the store that are not wanted."
    )


class Photograph(BaseModel):
    """What is known of a picture beside what it shows."""

    date: str = Field("", description="YYYY-MM-DD hh:mm:ss or a beginning of that; empty if unknown.")
    width: int | None = Field(None, description="Pixels of the upright picture; null without one.")
    height: int | None = None


class Result(Photograph):
    """One result of a search."""

    id: str
    distance: int | None = Field(
        description="Number of bits in which its code differs from the query's; null where words alone were asked for."
    )
    code: str = Field(description="Its code of the searched modality.")
    text: str
    labels: list[str]
    image: str = Field(description="Address of its thumbnail relative to the API's root, empty without a picture.")
    modalities: list[str] = Field(description="The modalities of its codes.")
    metadata: dict[str, Any]
    match: float | None = Field(None, description="Of random items, the share at least as near; null if unknown.")
    duplicates: list[str] | None = Field(None, description="With collapse, the ids of results folded into this one.")


class Understood(BaseModel):
    """One part of what was asked."""

    kind: Literal["words", "without", "image", "item", "without_item", "code", "label", "folder", "month", "where"]
    value: str = Field(description="The words, id, code, name or filter; empty for an uploaded picture.")
    weight: float = Field(1.0, description="How much words count beside other parts.")


class SearchResponse(BaseModel):
    """The results of a search, best first."""

    query_code: str = Field(description="Empty where words alone were asked for.")
    query_modality: str = Field(description="Modality of the query's code; empty if the query was a bare code.")
    modality: str
    n_bits: int
    results: list[Result]
    close: bool | None = Field(
        None, description="Whether the first results are as near as those of the store's own items; null if unknown."
    )
    offset: int = 0
    understood: list[Understood] = Field([], description="What was asked, part by part.")
    duplicates: list[str] | None = Field(
        None, description="With exclude_self and collapse, the ids of near-duplicates of the item itself."
    )
    note: str = Field("", description="What the query could not be compared with, and what to do; empty if nothing.")
    seconds: float = Field(description="Time from the request's arrival to its response.")


class DuplicatesResponse(BaseModel):
    """Groups of near-duplicates, the largest first, equally large ones by their first id."""

    groups: list[list[str]] = Field(description="The ids of each group, sorted; of a large one, the first of them.")
    distances: list[list[int]] = Field(description="Of each of them, the bits in which it differs from the first.")
    sizes: list[int] = Field(description="Number of items of each group.")
    found: int = Field(description="Number of groups, also of those left out.")
    modality: str
    radius: int | None = Field(description="The radius of the request.")
    seconds: float = Field(description="Time from the request's arrival to its response.")


class ExplainItem(_Request):
    """One item of a pair: exactly one of ``text``, ``id`` and ``code``."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=_ONE_QUERY)

    text: Text | None = Field(None, description="Words.")
    id: Text | None = Field(None, description="An item that is in the store.")
    code: HexCode | None = None
    modality: Modality | None = Field(
        None, description="Modality of the item's code or of the bare code; image if there are any."
    )


class MapOptions(_Request):
    """How parts of a picture are hidden."""

    maps: bool = Field(True, strict=True, description="Hide parts of pictures, and leave out words.")
    cells: Annotated[int, Field(ge=1, le=32, strict=True)] = Field(8, description="Cells along the short side.")
    patch: Annotated[int, Field(ge=1, le=32, strict=True)] = Field(
        2, description="Side of the patch in cells, at most ``cells``; it moves by one cell."
    )
    fill: Literal["grey", "blur"] = Field("grey", description="What the patch shows.")


class ExplainRequest(MapOptions):
    """A pair, and how its parts are hidden."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"first": {"text": "a dog on a beach"}, "second": {"id": "17"}}]},
    )

    first: ExplainItem
    second: ExplainItem


class BitResponse(BaseModel):
    """One bit of a pair of codes."""

    bit: int = Field(description="Its place in the code, counted from 1.")
    values: list[int]
    agrees: bool
    strengths: list[float | None] = Field(description="|output| over their root mean square; null for stored bits.")
    share: float = Field(description="Its summand of the cosine of both outputs.")
    meaning: list["LabelCorrelation"] = Field(description="Labels that go with a 1 (positive) or a 0 (negative).")


class LabelCorrelation(BaseModel):
    """How strongly a label goes with a bit: the phi coefficient."""

    label: str
    correlation: float


class LabelWeight(BaseModel):
    """How strongly the agreeing bits speak for a label."""

    label: str
    weight: float


class MapResponse(BaseModel):
    """The influence of the parts of a picture, as cells of the upright picture, row by row."""

    rows: int
    columns: int
    patch: int
    influence: list[list[float]] = Field(
        description="Bits that the pair is farther apart without it; positive holds the pair together."
    )
    flips: list[list[float]] = Field(description="Bits of the picture that flip without it, on average.")
    strongest: list[int] = Field(description="The bits that flip under the patch that matters most.")
    flipping: list[float] = Field(description="For each bit, the share of patches that flip it.")


class WordResponse(BaseModel):
    """The influence of one word."""

    word: str
    influence: float
    flips: list[int]


class SideResponse(BaseModel):
    """One item of the pair."""

    modality: str
    name: str
    map: MapResponse | None
    words: list[WordResponse] | None


class ExplainResponse(BaseModel):
    """Why two codes are as near as they are."""

    n_bits: int
    distance: int
    relaxed_distance: float
    summary: str
    labels: list[LabelWeight]
    bits: list[BitResponse]
    sides: list[SideResponse]
    remarks: list[str] = Field(description="What could not be done, a line each.")
    seconds: float


class BrowsedItem(Photograph):
    """One item without its codes."""

    id: str
    text: str
    labels: list[str]
    image: str = Field(description="Address of its thumbnail relative to the API's root, empty without a picture.")
    metadata: dict[str, Any]


class ItemResponse(BrowsedItem):
    """One item as it is stored."""

    codes: dict[str, str]


class BrowsedItems(BaseModel):
    """Some of the items that a request selects."""

    total: int = Field(description="Number of items that it selects.")
    offset: int
    items: list[BrowsedItem]


class Facet(BaseModel):
    """A label, a folder or a month, and how many items are of it."""

    name: str
    count: int


class Facets(BaseModel):
    """What the items of the store can be narrowed by."""

    labels: list[Facet] = Field(description="Most frequent first.")
    folders: list[Facet] = Field(description="By name; of what lies below them, too.")
    months: list[Facet] = Field(description="YYYY-MM, newest first; of dates that are stored.")


class NewItem(_Request):
    """An item to add: with a text, which the model encodes, or with codes made by the store's model."""

    id: Annotated[Text, Field(min_length=1)]
    text: Text | None = None
    codes: dict[Modality, HexCode] = {}
    metadata: Metadata = {}


class NewItems(_Request):
    """Items to add, all of them or none; each has codes of the same modalities."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"items": [{"id": "17", "text": "a dog", "metadata": {"year": 2020, "labels": ["dog"]}}]}]
        },
    )

    items: Annotated[list[NewItem], FailFast(), Field(min_length=1)]
    replace: bool = Field(False, strict=True, description="Replace codes that an item already has.")


class WriteResponse(BaseModel):
    """The number of items that were written or removed."""

    items: int


class Labels(BaseModel):
    """Label -> number of items with it, most frequent first."""

    labels: dict[str, int]


class Indexing(BaseModel):
    """A run of ``channelhash index`` that is going on in the store."""

    stage: str = Field(description="look, while it compares files with the store, or encode.")
    done: int
    total: int


class Info(BaseModel):
    """The store of this server, and its limits."""

    items: int
    n_bits: int | None
    codes: dict[str, int] = Field(description="Number of codes by modality.")
    model: str = Field(description="Fingerprint of the model whose codes are stored, empty if unknown.")
    asks: list[str] = Field(
        description="Modalities of the queries that can be encoded: text, image; both while the model loads."
    )
    words_alone: bool = Field(description="Whether a text, which it cannot encode, is looked for by its words.")
    writable: bool
    loading: list[str] = Field([], description="What is not ready yet and makes the first requests slower, in words.")
    indexing: Indexing | None = Field(None, description="The indexing run that adds items now; null if there is none.")
    limits: dict[str, int]


class Health(BaseModel):
    """The state of a working server."""

    status: Literal["ok"]
    items: int


class Problem(BaseModel):
    """The reason why a request was refused, in one line."""

    error: str
