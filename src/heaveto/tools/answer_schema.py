"""The schema that an answer is to keep: given as JSON, or as a type that pydantic knows."""

from __future__ import annotations

from typing import Any

from heaveto.errors import ConfigError
from heaveto.events.contents import Json


def answer_schema(given: dict[str, Json] | type[Any], where: str) -> dict[str, Json]:
    """Return the JSON schema of an answer. `where` names the place, for errors.

    Raises:
        ConfigError: it is neither a schema nor a type that has one, or not one of type object.
    """
    schema = given if isinstance(given, dict) else _schema_of(given, where)
    if schema.get("type") != "object":
        raise ConfigError(f"{where} is not a schema of type object but {given!r}; put the value into an object's field")
    return schema


def _schema_of(kind: type[Any], where: str) -> dict[str, Json]:
    from pydantic import PydanticUserError, TypeAdapter
    from pydantic_core import SchemaError

    try:
        return TypeAdapter(kind).json_schema()
    except (PydanticUserError, SchemaError) as error:
        raise ConfigError(f"{where} has no JSON schema: {str(error).splitlines()[0]}; pass a pydantic model") from error
