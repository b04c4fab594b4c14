"""OpenAI Responses: items, results anywhere behind their call; and servers that want them at once."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import cast

from heaveto.core import notes
from heaveto.core.repair import GAP, Block, Call, Made, Moved, Plan, Quoted, Result, Turn
from heaveto.core.repair.steps import Insert, Place, Step
from heaveto.core.wire_kinds import LOCAL_SHELL_OUTPUT, OUTPUT_OF
from heaveto.core.wire_marks import TELLING
from heaveto.histories.glance import CALLS, RESULTS, SAID, STORED, THOUGHT, UNCLEAR, WORDS, Fitting, Look, Seen
from heaveto.histories.profiles import Profile
from heaveto.histories.work import Body, Work, as_object, is_body, json_words, text_of, words_of

_OUTPUTS = frozenset(OUTPUT_OF.values())
_ANSWERED = _OUTPUTS | OUTPUT_OF.keys()
_SAID = "(?:[si]|t+(?=[ic]))"
_STRETCH = f"{_SAID}+w+|{_SAID}*c+r+w*"
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_FOREIGN = TELLING - {"type"}
_OWN_BLOCKS = frozenset(("input_text", "output_text", "input_image", "input_file", "refusal"))
_NO_PICTURE = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII="
)


class ResponsesFormat:
    """Reads and writes input items. What the model says in a row is one turn: reasoning and its calls are a unit."""

    def is_divisible(self, messages: list[Body], settings: Body) -> bool:
        """Not where an item's id stands twice (R7), nor under a body's settings: items may be stored, or chained."""
        ids = [item_id for item in messages if (item_id := text_of(item.get("id")))]
        return not settings and len(set(ids)) == len(ids)

    def looker(self, profile: Profile) -> Look:
        """Return what tells what an item plainly is."""
        names = Fitting(profile.names)

        def look(item: Body) -> Seen:
            item_id, kind = item.get("id"), item.get("type")
            if item_id is not None and (type(item_id) is not str or not _ID.fullmatch(item_id)):
                return UNCLEAR
            if not item.keys().isdisjoint(_FOREIGN):
                return UNCLEAR
            if kind is None or kind == "message":
                role, content = item.get("role"), item.get("content")
                if type(content) is list and not all(map(_is_own, cast("list[object]", content))):
                    return UNCLEAR
                if role == "assistant":
                    return SAID if item_id is None else STORED
                return WORDS if role == "user" else UNCLEAR
            if kind == "function_call":
                return _seen_call(item, names)
            if kind == "function_call_output":
                call_id = item.get("call_id")
                return (RESULTS, call_id) if type(call_id) is str and call_id else UNCLEAR
            return THOUGHT if kind == "reasoning" else UNCLEAR

        return look

    def stretch(self, profile: Profile) -> str:
        """Return the pattern of a quiet stretch."""
        return _STRETCH

    def clean(self, work: Work) -> None:
        """Item ids, references to what is not stored, names, arguments (R7, R9 to R11)."""
        seen: dict[str, Body] = {}
        is_stored = work.settings.get("store") is not False
        for index, item in work.to_clean():
            clean: Body | None = item
            if item.get("id") is not None and item.get("type") != LOCAL_SHELL_OUTPUT:
                clean = _clean_id(work, index, item, seen, is_stored=is_stored)
            elif item.get("type") == "reasoning" and not is_stored and not item.get("encrypted_content"):
                clean = None
                work.report("R11", index, "dropped", "reasoning that is not stored and holds nothing")
            kind = _kind(item)
            if clean is not None and kind in _ANSWERED:
                clean = work.with_text_id(clean, _id_key(clean), index)
                clean = _clean_call(work, index, clean) if kind in OUTPUT_OF else clean
            work.messages[index] = clean

    def read(self, work: Work) -> list[Step]:
        """Return calls and results in order."""
        steps: list[Step] = []
        calls: list[Call] = []
        end: Place | None = None
        for index, item in enumerate(work.messages):
            if item is None:
                continue
            kind = _kind(item)
            if _is_models(item):
                end = (index, 0)
                if _is_open(item):
                    calls.append(Call(end, text_of(item.get("call_id")), _name(item), work.raw_of(item)))
                continue
            if end is not None:
                steps.append(Turn(tuple(calls), end) if calls else GAP)
                calls, end = [], None
            steps.append(Block((_result(index, item),)) if kind in _OUTPUTS else GAP)
        if end is not None:
            steps.append(Turn(tuple(calls), end) if calls else GAP)
        return steps

    def apply(self, work: Work, plan: Plan) -> None:
        """Take out, rename, put in."""
        items: list[Body | None] = []
        origins: list[int] = []
        for index, item in enumerate(work.messages):
            place = (index, 0)
            if item is not None and place not in plan.removed:
                new_id = plan.ids.get(place)
                items.append(item if new_id is None else _with_id(item, new_id))
                origins.append(index)
            for insert in plan.inserts.get(place, ()):
                items.append(_inserted(work, insert))
                origins.append(index)
        work.rebuild(items, origins)

    def settle(self, work: Work) -> None:
        """Outputs of the right kind, calls next to their outputs, reasoning with what it led to (R2, R4 to R6)."""
        _match_kinds(work)
        if work.profile.adjacent_items:
            _calls_last(work)
        _pair_reasoning(work)


def _is_own(part: object) -> bool:
    return is_body(part) and part.get("type") in _OWN_BLOCKS


def _seen_call(item: Body, names: Fitting) -> Seen:
    item_id, call_id, name = item.get("id"), item.get("call_id"), item.get("name")
    if type(call_id) is not str or not call_id or type(name) is not str or not names[name]:
        return UNCLEAR
    if type(item.get("arguments")) is not str or "execution" in item:
        return UNCLEAR
    return (CALLS, call_id) if item_id is None or item_id.startswith("fc") else UNCLEAR


def _kind(item: Body) -> str:
    """The type of an item; messages need none."""
    return text_of(item.get("type"))


def _is_models(item: Body) -> bool:
    kind = _kind(item)
    if not kind or kind == "message":
        return item.get("role") == "assistant"
    return kind == "reasoning" or kind.endswith("_call")


def _is_open(item: Body) -> bool:
    return _kind(item) in OUTPUT_OF and item.get("execution") != "server"


def _name(item: Body) -> str:
    return text_of(item.get("name")) or _kind(item)


def _result(index: int, item: Body) -> Result:
    key = _id_key(item)
    return Result((index, 0), text_of(item.get(key)), "", item.get("output"))


def _id_key(item: Body) -> str:
    """The local shell's results have the id of their call as their own."""
    return "id" if item.get("type") == LOCAL_SHELL_OUTPUT and "call_id" not in item else "call_id"


def _with_id(item: Body, new_id: str) -> Body:
    return {**item, _id_key(item): new_id}


def _clean_id(work: Work, index: int, item: Body, seen: dict[str, Body], *, is_stored: bool) -> Body | None:
    item_id, kind = text_of(item.get("id")), _kind(item)
    is_bare = kind == "item_reference" or (not kind and set(item) <= {"id"})
    if not is_stored and (is_bare or (kind == "reasoning" and not item.get("encrypted_content"))):
        work.report("R11", index, "dropped", f"{item_id} is not stored")
        return None
    if item_id in seen:
        if seen[item_id] == item:
            work.report("R7", index, "dropped", f"the same item {item_id} stands there already")
            return None
        work.report("R7", index, "edited", f"another item has the id {item_id} already")
        return _without_id(item)
    if not is_bare and (not _ID.fullmatch(item_id) or (kind == "function_call" and not item_id.startswith("fc"))):
        work.report(
            "R9" if len(item_id) <= 64 else "R10", index, "edited", f"the format does not take the id {item_id}"
        )
        return None if kind == "reasoning" else _without_id(item)
    seen[item_id] = item
    return item


def _without_id(item: Body) -> Body:
    return {key: value for key, value in item.items() if key != "id"}


def _clean_call(work: Work, index: int, item: Body) -> Body:
    call_id, name = text_of(item.get("call_id")), text_of(item.get("name"))
    if _kind(item) in ("function_call", "custom_tool_call"):
        fitting = work.fit_name(name, work.profile.names)
        if fitting != name:
            work.report("R18", index, "renamed", f"now {fitting}", call_id=call_id, name=name)
            item = {**item, "name": fitting}
    arguments = item.get("arguments")
    if item.get("type") == "function_call" and (work.profile.json_arguments or not isinstance(arguments, str)):
        value, raw = as_object(arguments)
        if raw is not None or not isinstance(arguments, str) or not arguments:
            known = "arguments were no text" if raw is None else "arguments were no JSON object"
            item = {**item, "arguments": json_words(value)}
            work.keep_raw(item, raw)
            work.report("A8", index, "edited", known, call_id=call_id, name=name)
    return item


# --- writing --------------------------------------------------------------------------------------------------------


def _inserted(work: Work, insert: Insert) -> Body:
    match insert:
        case Made():
            call = cast("Body", work.messages[insert.call.place[0]])
            return _made(text_of(call.get("type")), insert)
        case Moved(result=result):
            item = cast("Body", work.messages[result.place[0]])
            return item if result.id == insert.id else _with_id(item, insert.id)
        case Quoted(result=result):
            words = result.value if isinstance(result.value, str) else json_words(result.value)
            return {"role": "user", "content": notes.orphan_note(result.id, result.name, words)}


def _made(kind: str, insert: Made) -> Body:
    words = words_of(insert.value)
    output = {"type": OUTPUT_OF[kind], "call_id": insert.id}
    make = _MAKERS.get(kind)
    return {**output, "output": words} if make is None else make(output, words, insert)


def _made_patch(output: Body, words: str, insert: Made) -> Body:
    return {**output, "status": "failed" if insert.is_error else "completed", "output": words}


def _made_search(output: Body, words: str, insert: Made) -> Body:
    return {**output, "execution": "client", "status": "incomplete" if insert.is_error else "completed", "tools": []}


def _made_local_shell(output: Body, words: str, insert: Made) -> Body:
    return {"type": output["type"], "id": insert.id, "output": words}


def _made_shell(output: Body, words: str, insert: Made) -> Body:
    outcome = {"type": "exit", "exit_code": 1 if insert.is_error else 0}
    return {**output, "output": [{"stdout": "", "stderr": words, "outcome": outcome}]}


def _made_screen(output: Body, words: str, insert: Made) -> Body:
    return {**output, "output": {"type": "computer_screenshot", "image_url": _NO_PICTURE}}


_MAKERS: dict[str, Callable[[Body, str, Made], Body]] = {
    "apply_patch_call": _made_patch,
    "tool_search_call": _made_search,
    "local_shell_call": _made_local_shell,
    "shell_call": _made_shell,
    "computer_call": _made_screen,
}


# --- neighbours -----------------------------------------------------------------------------------------------------


def _match_kinds(work: Work) -> None:
    """An output is of the kind of its call: results that a bridge translated may be of another (R2)."""
    kinds: dict[str, str] = {}
    for place, item in enumerate(work.messages):
        if item is None:
            continue
        kind = _kind(item)
        if kind in OUTPUT_OF:
            kinds[text_of(item.get("call_id"))] = kind
        elif kind in _OUTPUTS:
            call_id = text_of(item.get(_id_key(item)))
            called = kinds.get(call_id)
            if called is not None and OUTPUT_OF[called] != kind:
                words = item.get("output")
                insert = Made(
                    Call((0, 0), call_id, ""), call_id, words if isinstance(words, str) else json_words(words), False
                )
                work.messages[place] = _made(called, insert)
                work.report(
                    "R2",
                    work.origins[place],
                    "edited",
                    f"the output was of another kind than its {called}",
                    call_id=call_id,
                )


def _calls_last(work: Work) -> None:
    """Within what the model says in a row, its calls come last, so that their outputs follow at once (R4)."""
    items: list[Body | None] = []
    origins: list[int] = []
    run: list[tuple[int, Body]] = []
    for index, item in [*work.placed(), (-1, {})]:
        if index >= 0 and _is_models(item):
            run.append((index, item))
            continue
        ordered = sorted(run, key=lambda entry: _is_open(entry[1]))
        for (before, _), (at, moved) in zip(run, ordered, strict=True):
            items.append(moved)
            origins.append(at)
            if at < before:
                work.report(
                    "R4", at, "moved", "calls stand last in what the model says", call_id=text_of(moved.get("call_id"))
                )
        run = []
        if index >= 0:
            items.append(item)
            origins.append(index)
    work.messages, work.origins = items, origins


def _pair_reasoning(work: Work) -> None:
    """Drop reasoning without what it led to, and then the stored ids that need it (R5, R6)."""
    following: Body | None = None
    for place in range(len(work.messages) - 1, -1, -1):
        item = work.messages[place]
        if item is None:
            continue
        is_open = following is None and not work.is_end  # what it led to comes behind what is looked at here
        if item.get("type") == "reasoning" and not is_open and not _is_product(following):
            work.messages[place] = None
            work.report("R5", work.origins[place], "dropped", "what it led to does not stand behind it")
            continue
        following = item


def _is_product(item: Body | None) -> bool:
    if item is None:
        return False
    kind = _kind(item)
    if not kind or kind == "message":
        return item.get("role") == "assistant" and bool(item.get("id"))
    return kind == "reasoning" or kind.endswith("_call")
