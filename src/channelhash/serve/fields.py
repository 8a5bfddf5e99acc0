"""Fields that several requests and responses of the HTTP API have, and their limits.

The shape of a request is checked here, and so are limits that only this server has. The library
checks what it takes, such as that ``k`` is at least 1; here, only the description says so.
"""

from typing import Annotated, Any, Literal

from fastapi import UploadFile
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    FailFast,
    Field,
    JsonValue,
    TypeAdapter,
)
from pydantic.json_schema import WithJsonSchema

from channelhash.errors import InputError
from channelhash.search.checks import check_words
from channelhash.search.filters import quoted
from channelhash.search.store import Store

#: Key, or what is counted -> the most that a request may ask for.
MOST = {
    "k": 1000,  # results of a search, whose answer is kept in memory
    "items": 1000,  # items of a write, all of which are encoded together
    "characters": 2000,  # of a text
    "numbers": 16_384,  # of a vector
    "vectors": 1000,  # that ask at once
}


def _check_metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    """Refuse the path of an image, which would be opened later: only this server sets it."""
    if "image" in metadata:
        raise ValueError("image is set by the server; upload the picture to /items/image")
    return metadata


#: A text of limited length; a limit also refuses half a character (a lone surrogate), which no
#: store or tokenizer accepts.
Text = Annotated[str, Field(max_length=MOST["characters"])]
NonEmptyText = Annotated[Text, AfterValidator(check_words)]
ItemId = Annotated[Text, Field(min_length=1)]
Modality = Literal["image", "text", "vector"]
#: Checked as in Python, by `checks.check_metadata`: an error of a union would name any one of its
#: types.
_NewValue = Annotated[
    Any, WithJsonSchema(TypeAdapter(bool | int | float | str | list[str] | None).json_schema())
]
NewMetadata = Annotated[dict[str, _NewValue], AfterValidator(_check_metadata)]
HexCode = Annotated[
    str, Field(pattern="^([0-9a-fA-F]{2})+$", description="A packed code as hexadecimal digits.")
]
Vector = Annotated[list[float], FailFast(), Field(min_length=1, max_length=MOST["numbers"])]
#: The library refuses numbers below 0.
Natural = Annotated[int, WithJsonSchema({"minimum": 0, "type": "integer"})]
PageSize = Annotated[int, Field(ge=1, le=MOST["k"])]
#: An image. OpenAPI 3.1 says "contentMediaType", but generators of clients look for what 3.0 said.
Upload = Annotated[
    UploadFile,
    Field(description="JPEG, PNG, WebP, GIF, BMP or TIFF.", json_schema_extra={"format": "binary"}),
]
#: A request without any query. Generators of clients take each entry of "anyOf" or "oneOf" for a
#: whole request, so neither is used.
_NO_QUERY: dict[str, JsonValue] = {
    "properties": {name: {"type": "null"} for name in ("text", "id", "code", "vector")}
}


def json_body(*exclusive: tuple[str, str], **extra: JsonValue) -> ConfigDict:
    """Return the settings of a body in JSON, whose types are exact.

    Of each pair of ``exclusive`` keys only one may be given, and at least one of all queries.
    """
    described = dict(extra)
    if exclusive:
        refused = [_NO_QUERY, *map(_both, exclusive)]
        described["allOf"] = [{"not": query} for query in refused]
    return ConfigDict(strict=True, extra="forbid", json_schema_extra=described)


def _both(pair: tuple[str, str]) -> dict[str, JsonValue]:
    """Return the schema of a query that has both keys."""
    given: JsonValue = {"type": ["string", "array"]}
    return {"required": [*pair], "properties": dict.fromkeys(pair, given)}


class RequestModel(BaseModel):
    """A request, of which every key is known."""

    model_config = ConfigDict(extra="forbid")


class Narrowing(RequestModel):
    """Filters, all of which an item must pass."""

    where: Text | None = Field(None, description="Filter: label = 'dog' AND year > 2015.")
    label: Annotated[list[Text], FailFast(), Field(max_length=31)] = Field(
        [], description="Only items with any of these labels."
    )
    folder: Text | None = Field(None, description="Only items whose id begins with it and a slash.")
    month: str | None = Field(
        None,
        pattern=r"^\d{4}(-\d\d){0,2}$",
        description="Only items of this date: YYYY, YYYY-MM or YYYY-MM-DD.",
    )

    @property
    def is_narrowed(self) -> bool:
        """Whether any of these is given."""
        return bool(self.where or self.label or self.folder or self.month)

    def filter_of(self, store: Store) -> str | None:
        """Return all filters as one; None if there are none."""
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
