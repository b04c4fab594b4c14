"""Whether an answer fits what a call asked for."""

from __future__ import annotations

from heaveto.errors import AnswerInvalidError
from heaveto.events.contents import Json


def check_answer(call_id: str, value: Json, schema: dict[str, Json] | None) -> None:
    """Check a value against the JSON schema of a question.

    Raises:
        AnswerInvalidError: it does not fit; the message says where.
    """
    if schema is None:
        return
    from jsonschema import ValidationError, validate

    try:
        validate(value, schema)
    except ValidationError as error:
        raise AnswerInvalidError(call_id, f"{error.json_path}: {error.message}") from error
