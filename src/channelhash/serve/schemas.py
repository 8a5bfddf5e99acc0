"""Requests and responses of searches, explanations and the server's state.

FastAPI makes the description of the API (``/openapi.json``) from them.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, FailFast, Field, model_validator

from channelhash.explanation.occlusion import MapSettings
from channelhash.search import question
from channelhash.serve.fields import (
    MOST as MOST,
    HexCode,
    ItemId,
    Modality,
    Narrowing,
    Natural,
    NonEmptyText,
    RequestModel,
    Text,
    Upload,
    Vector,
    json_body,
)
from channelhash.serve.item_schemas import BrowsedItem

PartKind = Literal[
    "words",
    "without",
    "date",
    "place",
    "image",
    "item",
    "without_item",
    "code",
    "vector",
    "label",
    "folder",
    "month",
    "where",
]


class SearchFields(Narrowing):
    """What every search may ask for: which items are searched, and how many are returned."""

    modality: Modality | None = Field(
        None, description="Modality of the codes that are searched; image if the store has any."
    )
    k: int = Field(
        10,
        le=MOST["k"],
        json_schema_extra={"minimum": 1},
        description="Number of results; at most so many with ``radius``.",
    )
    radius: Natural | None = Field(None, description="Only items within this many bits, inclusive.")
    by: Literal["all", "image", "text", "vector", "words"] | None = Field(
        None, description="What is searched; all by default, for plain words."
    )
    minus: Annotated[list[NonEmptyText], FailFast(), Field(max_length=31)] = Field(
        [], description="Unwanted words."
    )
    collapse: Natural | bool | None = Field(
        None,
        description=(
            "Fold results within this many bits of an earlier one into it. true: within the usual "
            "number, as by default where images are searched without ``radius``. "
            "false: fold none."
        ),
    )
    fitting: bool = Field(
        False,
        description="Leave out results that are less likely to answer the words, where known.",
    )
    order: Literal["newest", "oldest"] | None = Field(
        None, description="Order results by date instead of the best first."
    )
    offset: Natural = Field(0, description="Number of results of the same ranking to pass over.")

    @model_validator(mode="after")
    def _check_numbers(self) -> Self:
        question.SearchOptions(
            k=self.k,
            radius=self.radius,
            collapse=self.collapse,
            offset=self.offset,
        )
        if self.offset + self.k > MOST["k"]:
            raise ValueError(
                f"offset and k together are more than {MOST['k']}, this server's limit"
            )
        return self


class ImageSearch(SearchFields):
    """An image to search with, and words beside it."""

    image: Upload
    text: Text = Field("", description="Words that are wanted, too.")


class SearchRequest(SearchFields):
    """The query: ``text``, ``id``, ``code`` or ``vector``; or ``text`` together with one of the
    others.
    """

    model_config = json_body(
        ("id", "code"),
        ("id", "vector"),
        ("code", "vector"),
        examples=[{"text": "a dog on a beach -people", "k": 5}, {"id": "17", "text": "at night"}],
    )

    text: NonEmptyText | None = Field(
        None, description='"two dogs"^2 is a phrase that counts twice, -people is not wanted.'
    )
    id: Text | None = Field(None, description="An item of the store; its own code is the query.")
    vector: list[float] | None = Field(
        None,
        min_length=1,
        max_length=MOST["numbers"],
        description="A vector of the encoder whose vectors the store was made of.",
    )
    query_modality: Modality | None = Field(
        None, description="Modality of the item's code; that of ``modality`` if it has one."
    )
    code: HexCode | None = None
    exclude_self: bool = Field(
        False,
        description="Leave out the item ``id``, and its near-duplicates where they are folded.",
    )
    minus_ids: Annotated[list[Text], FailFast(), Field(max_length=31)] = Field(
        [], description="Unwanted items."
    )

    @model_validator(mode="after")
    def _check_query(self) -> Self:
        asked = [key for key in ("id", "code", "vector") if getattr(self, key) is not None]
        if self.text is None and not asked:
            raise ValueError("give text, id, code or vector: what to search for")
        if len(asked) > 1:
            named = " and ".join(asked)
            raise ValueError(f"{named} are several queries; give one of them, or one with text")
        for key in ("query_modality", "exclude_self"):
            if getattr(self, key) and self.id is None:
                raise ValueError(f"{key}: belongs to the item that asks; give it with id")
        return self


class VectorsRequest(Narrowing):
    """Vectors, each of which is a question."""

    model_config = json_body(examples=[{"vectors": [[0.25, -0.5], [1.0, 0.0]], "k": 5}])

    vectors: Annotated[
        list[Vector], FailFast(), Field(min_length=1, max_length=MOST["vectors"])
    ] = Field(description="Of the encoder whose vectors the store was made of.")
    modality: Modality | None = Field(
        None, description="Modality of the codes that are searched; image if the store has any."
    )
    k: int = Field(
        10,
        le=MOST["k"],
        json_schema_extra={"minimum": 1},
        description="Largest number of answers to each.",
    )


class Nearest(BaseModel):
    """The nearest items of one vector, best first."""

    ids: list[str]
    distances: list[int] = Field(description="Bits in which their codes differ.")
    similarities: list[float] | None = Field(
        description="By the projections of the store; null where it keeps none."
    )


class VectorsResponse(BaseModel):
    """The answers to vectors, in their order."""

    answers: list[Nearest]
    seconds: float = Field(description="Time from the request's arrival to its response.")


class Result(BrowsedItem):
    """One result of a search."""

    distance: int | None = Field(
        description="Bits in which its code differs; null where words alone were asked for."
    )
    code: str = Field(description="Its code of the searched modality.")
    modalities: list[str] = Field(description="The modalities of its codes.")
    similarity: float | None = Field(
        None,
        description="Of its vector and the query's, by the store's projections; null without.",
    )
    match: float | None = Field(
        None, description="Share of random items that are at least as near; null if unknown."
    )
    fit: float | None = Field(
        None,
        description=(
            "Probability that it answers the words; below 0.25 it is less likely to. Null if "
            "unknown."
        ),
    )
    duplicates: list[str] | None = Field(
        None, description="The ids of results folded into this one; null where none fold."
    )
    quote: str = Field("", description="Lines of the text in its image that hold the words.")


class Understood(BaseModel):
    """One part of what was asked."""

    kind: PartKind
    value: str = Field(
        description="The words, id, code, name or filter; empty for an uploaded image."
    )
    weight: float = Field(1.0, description="How much the words count beside other parts.")
    means: str = Field("", description="What a date or a place in the words narrows the search to.")


class StoreAnswer(BaseModel):
    """What is known of an answer beside its results."""

    query_code: str = Field(description="Empty where words alone were asked for.")
    query_modality: str = Field(
        description="Modality of the query's code; empty if the query was a bare code."
    )
    modality: str
    n_bits: int
    close: bool | None = Field(
        None, description="Whether the first are as near as answers should be; null if unknown."
    )
    offset: int = 0
    understood: list[Understood] = Field([], description="What was asked, part by part.")
    duplicates: list[str] | None = Field(
        None,
        description="With ``exclude_self``, the item's near-duplicates; null if none are folded.",
    )
    note: str = Field(
        "",
        description="What the query could not be compared with, and what to do; empty if nothing.",
    )
    unlikely: bool = Field(
        False, description="With ``fitting``, whether less likely results were left out."
    )
    found: int | None = Field(
        None, description="Number of results that fit; null if unknown, as of a hundred and more."
    )
    likely: int | None = Field(
        None, description="Number of them that are likely to, which come first; null if unknown."
    )
    did_you_mean: str = Field(
        "", description="The question with its unknown words corrected, if that finds better."
    )
    seconds: float = Field(description="Time from the request's arrival to its response.")


class SearchResponse(StoreAnswer):
    """The results of a search, best first."""

    results: list[Result]


class MergedResult(Result):
    """One result of a search in several stores."""

    store: str = Field(description="Name of its store.")


class MergedResponse(BaseModel):
    """The results of a search in several stores."""

    results: list[MergedResult]
    merged_by: Literal["distance", "fit", "rank"] = Field(
        description="What orders results of different stores; those of one keep their order. With "
        "codes of one encoder ``distance``, or similarity, where they answer alone, else ``fit``, "
        "where it is known. Otherwise ``rank``: the first of each store, then the second."
    )
    answers: dict[str, StoreAnswer] = Field(description="What else each store says, by its name.")
    problems: dict[str, str] = Field(description="Why a store could not answer, by its name.")
    seconds: float = Field(description="Time from the request's arrival to its response.")


class StoreEntry(BaseModel):
    """One of several stores, whose own API begins at ``stores/NAME/``."""

    name: str
    items: int
    n_bits: int | None
    model: str = Field(description="Fingerprint of the model whose codes are stored.")


class ExplainItem(RequestModel):
    """One item of a pair: exactly one of ``text``, ``id`` and ``code``."""

    model_config = json_body(("text", "id"), ("text", "code"), ("id", "code"))

    text: NonEmptyText | None = Field(None, description="Words.")
    id: Text | None = Field(None, description="An item that is in the store.")
    code: HexCode | None = None
    modality: Modality | None = Field(
        None, description="Modality of the item's code, or of the bare code; image if possible."
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


class MapOptions(RequestModel):
    """How parts of an image are hidden."""

    maps: bool = Field(True, description="Draw maps: hide parts of images, and leave out words.")
    cells: int = Field(
        8, le=32, json_schema_extra={"minimum": 1}, description="Cells along the short side."
    )
    patch: int = Field(
        2,
        json_schema_extra={"maximum": 32, "minimum": 1},
        description="Side of the patch in cells, at most ``cells``; it moves by one.",
    )
    fill: Literal["grey", "blur"] = Field("grey", description="What the patch shows.")

    @model_validator(mode="after")
    def _check_settings(self) -> Self:
        MapSettings(self.cells, self.patch, self.fill)
        return self


class ImageExplanation(MapOptions):
    """An image, and the stored item that it is compared with."""

    image: Upload
    id: ItemId
    modality: Modality | None = Field(None, description="Which of the item's codes.")


class ExplainRequest(MapOptions):
    """A pair, and how its parts are hidden."""

    model_config = json_body(
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
        description="Each item with the map of its image or the influence of its words."
    )
    remarks: list[str] = Field(description="What could not be done, a line each.")
    seconds: float


class Indexing(BaseModel):
    """How far the server is with indexing its folder."""

    stage: str = Field(
        description="``indexing`` while new photographs are read; ``done`` are in the store."
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
        description="Whether texts, which cannot be encoded, are looked for by their words."
    )
    writable: bool
    loading: list[str] = Field(
        [], description="What is still loading, in words; requests that need it are slower."
    )
    version: int = Field(description="A number that changes with every write.")
    indexing: Indexing | None = Field(description="The indexing that is under way.")
    problem: str = Field(
        description="Why the folder could not be indexed the last time; empty if it could."
    )
    local: bool = Field(description="Whether ``/reveal`` answers this client.")
    decides: bool = Field(
        description="Whether this client's page may decide about copies, perhaps with a token."
    )
    limits: dict[str, int]


class Health(BaseModel):
    """The state of a working server."""

    status: Literal["ok"]
    items: int
    indexing: Indexing | None = Field(None, description="As in ``/info``; left out if none is.")


class Problem(BaseModel):
    """The reason why a request was refused, in one line."""

    error: str
