"""What Responses judges beyond pairs: reasoning and what it led to (R5, R6), what is stored (R11, R12)."""

from __future__ import annotations

from collections.abc import Collection

from heaveto.core.json_values import Body, text
from heaveto.core.validate.responses_dialect import OUTPUTS, Dialect, kind_of
from heaveto.core.validate.violation import Violation

_STORED_IDS = ("fc_", "msg_", "ws_")


def reasoning_violation(items: list[Body], dialect: Dialect, reasoning_model: bool) -> Violation | None:
    """Return the first reasoning item without what it led to, or the other way round, or None."""
    has_reasoned = False
    for index, item in enumerate(items):
        following = items[index + 1] if index + 1 < len(items) else None
        kind = kind_of(item) or "message"
        item_id = text(item.get("id"))
        if kind == "reasoning" and not _is_product(following):
            words = f"Item '{item_id}' of type 'reasoning' was provided without its required following item."
            return dialect.rejected("R5", words)
        if reasoning_model and _is_product(item) and item_id.startswith(_STORED_IDS) and not has_reasoned:
            needed = f"'rs_{item_id.partition('_')[2]}'"
            words = f"Item '{item_id}' of type '{kind}' was provided without its required 'reasoning' item: {needed}."
            return dialect.rejected("R6", words)
        has_reasoned = kind == "reasoning" or (has_reasoned and _is_product(item) and kind not in OUTPUTS)
    return None


def _is_product(item: Body | None) -> bool:
    """Whether an item is something that reasoning produced: a call, more reasoning, or a message with its id."""
    if item is None:
        return False
    kind = kind_of(item) or "message"
    if kind == "message":
        return item.get("role") == "assistant" and bool(item.get("id"))
    return kind == "reasoning" or kind.endswith("_call")


def state_violation(
    body: Body,
    items: list[Body],
    dialect: Dialect,
    known_responses: Collection[str] | None,
    known_items: Collection[str] | None,
) -> Violation | None:
    """Return the first thing that a request refers to and that is not stored, or None."""
    for item in items:
        item_id = text(item.get("id"))
        is_lost = body.get("store") is False if known_items is None else item_id not in known_items
        if item_id and is_lost and _is_reference(item):
            return _not_found(item_id, dialect)
    previous = body.get("previous_response_id")
    if previous and known_responses is not None and text(previous) not in known_responses:
        words = f"Previous response with id '{previous}' not found."
        return dialect.rejected("R12", words, "previous_response_id", "previous_response_not_found", sure=False)
    return None


def _is_reference(item: Body) -> bool:
    """Whether an item is only its id: a reference, or reasoning whose content the provider keeps."""
    kind = kind_of(item)
    is_bare = set(item) <= {"id", "type"} and kind in ("", "item_reference")
    return is_bare or (kind == "reasoning" and not item.get("encrypted_content"))


def _not_found(item_id: str, dialect: Dialect) -> Violation:
    words = (
        f"Item with id '{item_id}' not found. Items are not persisted when `store` is set to false. Try again with "
        "`store` set to true, or remove this item from your input."
    )
    broken = dialect.rejected("R11", words)
    return Violation("R11", 404, broken.body)
