"""The seam to the repair of histories and to the validators, for histories that come from files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from heaveto.core.json_values import objects
from heaveto.core.repair import RepairReport
from heaveto.core.validate import ALIASES, FORMATS, Violation, validate
from heaveto.errors import InvalidHistoryError, UnknownFormatError
from heaveto.histories import repair
from heaveto.histories.files.align import aligned
from heaveto.histories.files.json_text import Object
from heaveto.histories.files.report import FileChange

_MOST_NOT_UNDERSTOOD = 20
_OF_A_REQUEST = (
    "model", "modelId", "max_tokens", "tools", "toolConfig", "generationConfig", "systemInstruction", "inferenceConfig",
)  # fmt: skip
_NEXT: dict[str, Object] = {
    "openai-responses": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "next"}]},
    "gemini": {"role": "user", "parts": [{"text": "next"}]},
    "bedrock": {"role": "user", "content": [{"text": "next"}]},
}
_CALL_KEYS = ("toolUse", "functionCall", "function_call")


@dataclass(frozen=True, slots=True)
class Paired:
    """A repaired history, what was changed, and what its provider would still refuse.

    `body` is the repaired request body, where the history was part of one. `problems` names messages, by index, that
    could not be understood: they stay where they are, as they are.
    """

    history: list[Object]
    changes: tuple[FileChange, ...] = ()
    refused: Violation | None = None
    problems: tuple[tuple[int, str], ...] = ()
    body: Object | None = None


def known_format(name: str) -> str:
    """Return the usual name of a format.

    Raises:
        UnknownFormatError: there is none.
    """
    usual = ALIASES.get(name, name)
    if usual not in FORMATS:
        raise UnknownFormatError(name, [*FORMATS, *ALIASES])
    return usual


def paired(history: Sequence[Object], provider: str) -> Paired:
    """Repair a list of messages that somebody may go on with: it may end with an answer of the model."""
    kept = list(range(len(history)))
    problems: list[tuple[int, str]] = []
    done: Paired | None = None
    while done is None:
        try:
            done = _repaired([history[index] for index in kept], provider)
        except InvalidHistoryError as error:
            if error.index is None or error.index >= len(kept) or len(problems) == _MOST_NOT_UNDERSTOOD:
                return Paired(list(history), problems=(*problems, (0, error.problem)))
            index = kept.pop(error.index)
            problems.append((index, error.problem))
    changes = tuple(replace(change, index=kept[min(change.index, len(kept) - 1)]) for change in done.changes if kept)
    whole = _put_back(history, kept, done.history) if problems else done.history
    return replace(done, history=whole, changes=changes, problems=tuple(problems))


def paired_body(body: Object, messages: list[Object], key: str | None, provider: str) -> Paired:
    """Repair the list of a document; the rest of a request body is regarded, and repaired where it depends on it."""
    if key is None or key != FORMATS[provider].key or not any(name in body for name in _OF_A_REQUEST):
        return paired(messages, provider)
    try:
        request: Object = {**body, key: messages}
        repaired, report = repair(request, provider)
    except InvalidHistoryError:
        return paired(messages, provider)
    changes = _changes(report)
    history: list[Object] = repaired[key]
    return Paired(history, changes, validate(repaired, provider), body=repaired if changes else None)


def _repaired(history: list[Object], provider: str) -> Paired:
    """Repair a history up to the user's next words: they are put behind it where the model spoke last."""
    if not history:
        return Paired([])
    if not _is_last_word(history[-1]):
        repaired, report = repair(history, provider)
        if not any(change.action == "added" for change in report.changes):
            return Paired(repaired, _changes(report), validate(repaired, provider))
    words = _NEXT.get(provider, {"role": "user", "content": "next"})
    followed, report = repair([*history, words], provider)
    if followed[-1] != words:  # put together with what stood before
        followed, report = repair(history, provider)
        return Paired(followed, _changes(report), validate(followed, provider))
    return Paired(followed[:-1], _changes(report), validate(followed, provider))


def _is_last_word(message: Object) -> bool:
    """Whether the model said something and called nothing."""
    if message.get("role") not in ("assistant", "model"):
        return message.get("type") == "reasoning"
    blocks = [*objects(message.get("content")), *objects(message.get("parts"))]
    calls = any(block.get("type") == "tool_use" or any(key in block for key in _CALL_KEYS) for block in blocks)
    return not calls and not message.get("tool_calls")


def _changes(report: RepairReport) -> tuple[FileChange, ...]:
    return tuple(
        FileChange(one.rule, one.action, 0, one.index, one.call_id, one.name, one.known) for one in report.changes
    )


def _put_back(history: Sequence[Object], kept: list[int], repaired: list[Object]) -> list[Object]:
    """Put the messages that were not understood back behind those that they followed."""
    outs = aligned([history[index] for index in kept], repaired)
    at = [kept[out.origin] if out.origin is not None else -1 for out in outs]
    whole = list(repaired)
    for index in [index for index in range(len(history)) if index not in set(kept)]:
        place = max((place + 1 for place, origin in enumerate(at) if 0 <= origin < index), default=0)
        whole.insert(place, history[index])
        at.insert(place, index)
    return whole
