"""Contents of google.genai, put right in place: for callbacks and plugins that are handed a request's contents."""

from __future__ import annotations

from typing import Any

from heaveto.core.repair import Call, Made, Options, Result, decide
from heaveto.core.repair.steps import Place
from heaveto.errors import InvalidHistoryError
from heaveto.histories.gemini import GeminiFormat
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
    if not any(map(is_body, contents)) and _are_in_order(contents):
        return 0
    views = [_view(index, content) for index, content in enumerate(contents)]
    form = _ContentsFormat(contents)
    work = Work(_PROFILE, list(views), {}, origins=range(len(views)))
    work.snake_case = any("function_call" in part for view in views for part in view["parts"] if is_body(part))
    decision = decide(form.read(work), _PROFILE.policy, Options())
    if not decision.plan.is_empty:
        form.apply(work, decision.plan)
    form.arrange(work)
    if decision.changes or work.changes:
        originals = {id(view): content for view, content in zip(views, contents, strict=True)}
        contents[:] = [originals.get(id(view)) or form.content(view) for _, view in work.placed()]
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


class _ContentsFormat(GeminiFormat):
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
