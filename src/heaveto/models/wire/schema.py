"""The JSON schema of an answer, as providers want it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from heaveto.events.contents import Json

OUTPUT_NAME = "answer"
"""What a schema for answers is called, where it must have a name."""
_MAPS_OF_SCHEMAS = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
_PLAIN_VALUES = ("default", "const", "enum", "examples", "required")


def closed_schema(schema: dict[str, Json]) -> dict[str, Json]:
    """Return a schema in which objects have no properties but those that it names: providers want that said.

    Objects that say what else they may have, or name no properties, stay as they are.
    """
    closed = {key: _closed(key, value) for key, value in schema.items()}
    is_open = "properties" in closed and "additionalProperties" not in closed
    return {**closed, "additionalProperties": False} if is_open else closed


def is_strict_schema(schema: dict[str, Json]) -> bool:
    """Whether OpenAI's strict mode takes a closed schema: every object is closed, and all that it names is required."""
    if schema.get("type") == "object":
        named, required = schema.get("properties", ()), schema.get("required", ())
        if schema.get("additionalProperties") is not False or set(named) != set(required):
            return False
    return all(is_strict_schema(inner) for inner in _inner(schema))


def _closed(key: str, value: Json) -> Json:
    match value:
        case dict() if key in _MAPS_OF_SCHEMAS:
            schemas = cast("dict[str, Json]", value)
            return {name: _closed("", schema) for name, schema in schemas.items()}
        case dict() if key not in _PLAIN_VALUES:
            return closed_schema(cast("dict[str, Json]", value))
        case list() if key not in _PLAIN_VALUES:
            return [_closed("", schema) for schema in cast("list[object]", value)]
        case _:
            return value


def _inner(schema: dict[str, Json]) -> Iterator[dict[str, Json]]:
    for key, value in schema.items():
        match value:
            case dict() if key in _MAPS_OF_SCHEMAS:
                yield from _objects(list(cast("dict[str, Json]", value).values()))
            case dict() if key not in _PLAIN_VALUES:
                yield cast("dict[str, Json]", value)
            case list() if key not in _PLAIN_VALUES:
                yield from _objects(cast("list[object]", value))
            case _:
                pass


def _objects(values: list[object]) -> Iterator[dict[str, Json]]:
    yield from (cast("dict[str, Json]", value) for value in values if isinstance(value, dict))
