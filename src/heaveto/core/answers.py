"""Answers to waiting calls: whether one fits, and what it means for its call."""

from __future__ import annotations

from heaveto.events.contents import Json


def answer_problem(value: Json, schema: dict[str, Json] | None) -> str | None:
    """Return where a value does not fit a JSON schema, or None if it does."""
    if schema is None:
        return None
    from jsonschema import ValidationError, validate

    try:
        validate(value, schema)
    except ValidationError as error:
        return f"{error.json_path}: {error.message}"
    return None
