"""Contents of google.genai, put right in place: for callbacks and plugins that are handed a request's contents."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from heaveto.core.repair import Options, decide
from heaveto.errors import InvalidHistoryError
from heaveto.histories.gemini import GeminiFormat
from heaveto.histories.profiles import profile_named
from heaveto.histories.work import Body, Work, is_body

_FORMAT = GeminiFormat()
_PROFILE = profile_named("gemini-2.5")  # what is put in is no call, so it needs no signature


def repair_dangling_tool_calls(contents: list[Any]) -> int:
    """Give every function call its one response, in place, and return how many responses were made up.

    Takes ``google.genai.types.Content`` objects and dicts, with keys in snake case or as in JSON. Real responses move
    to their calls; of several for one call the last is kept; those without a call go; calls that share an id are told
    apart. A response that is made up says that the outcome is unknown. The list changes only where something was
    wrong: contents that need no change stay the same objects, and parts always do. Doing it again changes nothing.

    Raises:
        InvalidHistoryError: something in the list is no content.
    """
    parts: dict[int, Any] = {}
    views = [_view(index, content, parts) for index, content in enumerate(contents)]
    work = Work(_PROFILE, list(views), {}, origins=range(len(views)))
    work.snake_case = any("function_call" in part for view in views for part in view["parts"])
    decision = decide(_FORMAT.read(work), _PROFILE.policy, Options())
    if not decision.plan.is_empty:
        _FORMAT.apply(work, decision.plan)
    _FORMAT.arrange(work)
    if decision.changes or work.changes:
        originals = {id(view): content for view, content in zip(views, contents, strict=True)}
        contents[:] = [_content(view, originals, parts, contents) for _, view in work.placed()]
    return sum(change.action == "answered" for change in decision.changes)


def _view(index: int, content: Any, parts: dict[int, Any]) -> Body:
    """A content as a dict whose parts are dicts; `parts` remembers what they stand for."""
    if is_body(content):
        role, held = content.get("role"), content.get("parts")
    elif hasattr(content, "parts"):  # an edge: the SDK's types may not be installed
        role, held = content.role, content.parts
    else:
        raise InvalidHistoryError(index, f"must be a content, not {type(content).__name__}")
    views: list[Body] = []
    for part in cast("list[Any]", held or ()):
        view = part if is_body(part) else cast("Body", part.model_dump(by_alias=True, exclude_none=True))
        parts[id(view)] = part
        views.append(view)
    return {"role": "model" if role == "model" else "user", "parts": views}


def _content(view: Body, originals: dict[int, Any], parts: dict[int, Any], contents: list[Any]) -> Any:
    original = originals.get(id(view))
    if original is not None:
        return original
    kind, part_kind = _type_of(contents), _type_of(parts.values())
    held = [_part(part, parts, part_kind) for part in view["parts"]]
    return {"role": view["role"], "parts": held} if kind is None else kind(role=view["role"], parts=held)


def _type_of(values: Iterable[Any]) -> Any:
    """Return the SDK's type of what is there; None if all of it is dicts."""
    return next((cast("Any", type(value)) for value in values if not isinstance(value, dict)), None)


def _part(view: Body, parts: dict[int, Any], kind: Any) -> Any:
    known = parts.get(id(view))
    if known is not None or kind is None:
        return view if known is None else known
    return kind.model_validate(view)
