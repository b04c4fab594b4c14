"""Whether a history is of another format than the caller says. To repair it as his would delete what it holds."""

from __future__ import annotations

from heaveto.errors import InvalidHistoryError
from heaveto.histories.profiles import Profile
from heaveto.histories.work import Body, is_body, is_list

_NAMES = {
    "chat": "openai",
    "responses": "openai-responses",
    "anthropic": "anthropic",
    "gemini": "gemini",
    "bedrock": "bedrock",
}


def require_own(history: list[Body], profile: Profile) -> None:
    """Raise if the history has the calls, results or parts of other formats, and nothing of its own's.

    Raises:
        InvalidHistoryError: it is of another format, which the message names.
    """
    foreign: tuple[int, str, str] | None = None
    for index, message in enumerate(history):
        mark = _mark(message)
        if mark is None:
            continue
        family, what = mark
        if family == profile.family:
            return
        foreign = foreign or (index, family, what)
    if foreign is not None:
        index, family, what = foreign
        raise InvalidHistoryError(
            index, f"{what} is of another format than {profile.name!r}; say provider={_NAMES[family]!r}, or convert it"
        )
    if profile.family == "gemini":
        _require_parts(history)


def _mark(message: Body) -> tuple[str, str] | None:
    """Return the family that alone has such a message, and what tells it."""
    if message.get("role") == "tool" or message.get("tool_calls"):
        return "chat", "'tool_calls'" if message.get("tool_calls") else "the role 'tool'"
    if message.get("type") in ("function_call", "function_call_output"):
        return "responses", f"an item of type {message['type']!r}"
    if is_list(message.get("parts")):
        return "gemini", "'parts'"
    content = message.get("content")
    return _block_mark(content) if is_list(content) else None


def _block_mark(content: list[object]) -> tuple[str, str] | None:
    for block in content:
        if not is_body(block):
            continue
        if block.get("type") in ("tool_use", "tool_result"):
            return "anthropic", f"a block of type {block['type']!r}"
        if "type" not in block and ("toolUse" in block or "toolResult" in block):
            return "bedrock", "'toolUse'" if "toolUse" in block else "'toolResult'"
    return None


def _require_parts(history: list[Body]) -> None:
    """A message whose words are no parts would be taken for an empty one, and dropped (G6)."""
    for index, message in enumerate(history):
        if message.get("content"):
            raise InvalidHistoryError(
                index, "has 'content' where Gemini has 'parts'; say the provider whose format this is, or convert it"
            )
