"""Contents of google.genai, put right in place: for callbacks and plugins that are handed a request's contents."""

from __future__ import annotations

from typing import Any, cast

from heaveto.core.repair import Options, decide
from heaveto.errors import InvalidHistoryError
from heaveto.histories.gemini import GeminiFormat
from heaveto.histories.profiles import profile_named
from heaveto.histories.work import Body, Work, is_body

_ORIGINAL = "original"
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
    if not any(map(is_body, contents)) and _are_in_order(contents):
        return 0
    views = [_view(index, content) for index, content in enumerate(contents)]
    work = Work(_PROFILE, list(views), {}, origins=range(len(views)))
    work.snake_case = any("function_call" in part for view in views for part in view["parts"])
    decision = decide(_FORMAT.read(work), _PROFILE.policy, Options())
    if not decision.plan.is_empty:
        _FORMAT.apply(work, decision.plan)
    _FORMAT.arrange(work)
    if decision.changes or work.changes:
        originals = {id(view): content for view, content in zip(views, contents, strict=True)}
        kinds = _kinds(contents)
        contents[:] = [originals.get(id(view)) or _content(view, kinds) for _, view in work.placed()]
    return sum(change.action == "answered" for change in decision.changes)


def _are_in_order(contents: list[Any]) -> bool:
    """Whether each call has its response at once, in order, and nothing else is wrong: the usual and quick case."""
    asked: list[tuple[str | None, str | None]] = []
    before = "start"
    for content in contents:
        calls: list[tuple[str | None, str | None]] = []
        answers: list[tuple[str | None, str | None]] = []
        parts: list[Any] = getattr(content, "parts", None) or []
        for part in parts:
            if (call := part.function_call) is not None:
                calls.append((call.id, call.name))
            elif (response := part.function_response) is not None:
                answers.append((response.id, response.name))
        if asked != answers or (answers and len(answers) != len(parts)):
            return False
        if calls and (content.role != "model" or before in ("start", "model") or len(set(calls)) != len(calls)):
            return False
        asked, before = calls, content.role
    return not asked and bool(contents)


def _view(index: int, content: Any) -> Body:
    """A content as a dict of what a repair looks at."""
    if is_body(content):
        role, held = content.get("role"), content.get("parts")
    elif hasattr(content, "parts"):  # an edge: the SDK's types may not be installed
        role, held = content.role, content.parts
    else:
        raise InvalidHistoryError(index, f"must be a content, not {type(content).__name__}")
    parts: list[Body] = [part if is_body(part) else _part_view(part) for part in held or ()]
    return {"role": "model" if role == "model" else "user", "parts": parts}


def _part_view(part: Any) -> Body:
    call, response = part.function_call, part.function_response
    if call is not None:
        return {"functionCall": {"id": call.id, "name": call.name}, _ORIGINAL: part}
    if response is not None:
        told = {"id": response.id, "name": response.name, "response": response.response}
        return {"functionResponse": told, _ORIGINAL: part}
    return {_ORIGINAL: part}


def _kinds(contents: list[Any]) -> tuple[Any, Any]:
    """Return the SDK's types of contents and parts; None where all are dicts."""
    content = next((content for content in contents if not isinstance(content, dict) and content.parts), None)
    return (None, None) if content is None else (content.__class__, content.parts[0].__class__)


def _content(view: Body, kinds: tuple[Any, Any]) -> Any:
    content_kind, part_kind = kinds
    parts = [_part(part, part_kind) for part in cast("list[Body]", view["parts"])]
    return (
        {"role": view["role"], "parts": parts} if content_kind is None else content_kind(role=view["role"], parts=parts)
    )


def _part(view: Body, kind: Any) -> Any:
    """Return the part that a view stands for, with the id and name that it has got, or a new one."""
    original = view.get(_ORIGINAL)
    if original is None:
        return view if kind is None else kind.model_validate(view)
    for key, field in (("functionCall", "function_call"), ("functionResponse", "function_response")):
        held = getattr(original, field)
        if held is not None and (held.id, held.name) != (view[key].get("id"), view[key].get("name")):
            changed = held.model_copy(update={"id": view[key].get("id"), "name": view[key].get("name")})
            return original.model_copy(update={field: changed})
    return original
