"""Contents of google.genai, put right in place: for callbacks and plugins that are handed a request's contents."""

from __future__ import annotations

from typing import Any

from heaveto.core.repair import Call, Made, Options, Result, decide
from heaveto.core.repair.steps import Place
from heaveto.errors import InvalidHistoryError
from heaveto.histories.gemini import GeminiFormat
from heaveto.histories.glance import CALLS, RESULTS, SAID, UNCLEAR, WORDS, Seen, glance, sight_with
from heaveto.histories.parts import Repaired, is_apart, put_back
from heaveto.histories.profiles import profile_named
from heaveto.histories.work import Body, Work, is_body, text_of

_PROFILE = profile_named("gemini-2.5")  # what is put in is no call, so it needs no signature


def repair_dangling_tool_calls(contents: list[Any]) -> int:
    """Give every function call its one response, in place, and return how many responses were made up.

    Takes ``google.genai.types.Content`` objects and dicts, with keys in snake case or as in JSON. Real responses move
    to their calls; of several for one call the last is kept; those without a call go; calls that share an id are told
    apart. A response that is made up says that the outcome is unknown. The list changes only where something was
    wrong: contents that need no change stay the same objects. Doing it again changes nothing.

    Raises:
        InvalidHistoryError: something in the list is no content.
    """
    form = ContentsFormat(contents)
    done = repaired_in_parts(form, contents) or closely_repaired(form, contents)
    if done.changes:
        contents[:] = done.messages
    return sum(change.action == "answered" for change in done.changes)


def repaired_in_parts(form: ContentsFormat, contents: list[Any]) -> Repaired | None:
    """Repair what a glance does not find in order, by itself; None if that would not be the same."""
    seen = glance(contents, sight_with(_PROFILE, _look, form.stretch(_PROFILE)))
    picked = seen.pick(contents)
    if len(picked) == len(contents):
        return None
    try:
        done = closely_repaired(form, picked)
    except InvalidHistoryError:
        return None  # it will be raised again, with the place in the whole list
    return put_back(contents, seen, done) if is_apart(done, seen) else None


def closely_repaired(form: ContentsFormat, contents: list[Any]) -> Repaired:
    """Look at every content."""
    views = [_view(index, content) for index, content in enumerate(contents)]
    work = Work(_PROFILE, list(views), {}, origins=range(len(views)))
    work.snake_case = any("function_call" in part for view in views for part in view["parts"] if is_body(part))
    decision = decide(form.read(work), _PROFILE.policy, Options())
    if not decision.plan.is_empty:
        form.apply(work, decision.plan)
    form.arrange(work)
    work.changes += decision.changes
    if not work.changes:
        return Repaired(contents, [], decision.carry)
    originals = {id(view): content for view, content in zip(views, contents, strict=True)}
    there = work.placed()
    messages = [originals.get(id(view)) or form.content(view) for _, view in there]
    return Repaired(messages, work.changes, decision.carry, origins=[origin for origin, _ in there])


def _look(content: Any) -> Seen:
    """Tell what a content of the SDK plainly is. Dicts, and what is no content, are looked at closely."""
    try:
        parts, is_model = content.parts or (), content.role == "model"
        ids: list[str] = []
        for part in parts:
            call, result = part.function_call, part.function_response
            held = call if is_model else result
            if held is not None and held.name:
                ids.append(held.id or f"\0{held.name}")
            elif call is not None or result is not None:
                return UNCLEAR
    except AttributeError:
        return UNCLEAR
    if not ids:
        return SAID if is_model else WORDS
    return (CALLS, *ids) if is_model else (RESULTS, *ids) if len(ids) == len(parts) else UNCLEAR


def _view(index: int, content: Any) -> Body:
    """Return what a repair looks at: the role, and the parts themselves."""
    if is_body(content):
        role, parts = content.get("role"), content.get("parts")
    elif hasattr(content, "parts"):  # an edge: the SDK's types may not be installed
        role, parts = content.role, content.parts
    else:
        raise InvalidHistoryError(index, f"must be a content, not {type(content).__name__}")
    return {"role": "model" if role == "model" else "user", "parts": parts or []}


def _field(value: Any, snake: str, camel: str = "") -> Any:
    """Return a field of an object of the SDK, or of the dict that stands for one."""
    if not is_body(value):
        return getattr(value, snake)
    found = value.get(camel or snake)
    return value.get(snake) if found is None else found


class ContentsFormat(GeminiFormat):
    """Gemini's contents whose parts are objects of its SDK, or dicts."""

    def __init__(self, contents: list[Any]) -> None:
        typed = next((content for content in contents if not is_body(content) and content.parts), None)
        self._content_kind: Any = None if typed is None else typed.__class__
        self._part_kind: Any = None if typed is None else typed.parts[0].__class__

    def content(self, view: Body) -> Any:
        """Return the content that a new view stands for."""
        return view if self._content_kind is None else self._content_kind(role=view["role"], parts=view["parts"])

    def blocks(self, message: Body, index: int) -> list[Any]:
        return message["parts"]  # type: ignore[no-any-return]

    def is_call(self, block: Any) -> bool:
        return _field(block, "function_call", "functionCall") is not None

    def is_result(self, block: Any) -> bool:
        return _field(block, "function_response", "functionResponse") is not None

    def call(self, work: Work, block: Any, place: Place) -> Call | None:
        held = _field(block, "function_call", "functionCall")
        return None if held is None else Call(place, text_of(_field(held, "id")), text_of(_field(held, "name")))

    def result(self, block: Any, place: Place) -> Result | None:
        held = _field(block, "function_response", "functionResponse")
        if held is None:
            return None
        return Result(place, text_of(_field(held, "id")), text_of(_field(held, "name")), _field(held, "response"))

    def renamed(self, block: Any, new_id: str | None, name: str | None) -> Any:
        if is_body(block):
            return super().renamed(block, new_id, name)
        field = "function_call" if self.is_call(block) else "function_response"
        changes = {key: value for key, value in (("id", new_id), ("name", name)) if value is not None}
        return block.model_copy(update={field: getattr(block, field).model_copy(update=changes)})

    def made(self, work: Work, insert: Made) -> Any:
        return self._part(super().made(work, insert))

    def text(self, words: str) -> Any:
        return self._part(super().text(words))

    def _part(self, part: Body) -> Any:
        return part if self._part_kind is None else self._part_kind.model_validate(part)
