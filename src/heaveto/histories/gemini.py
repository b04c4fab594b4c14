"""Gemini's contents, with the keys of JSON or those of its Python SDK."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from heaveto.core import notes
from heaveto.core.repair import Call, Made, Result
from heaveto.core.repair.steps import Place
from heaveto.core.wire_names import NO_SIGNATURE, NOTHING, wants_signatures
from heaveto.histories.blocks import BlockFormat, settle_ends
from heaveto.histories.glance import CALLS, RESULTS, SAID, SIGNED, UNCLEAR, WORDS, Fitting, Look, Seen
from heaveto.histories.profiles import Profile
from heaveto.histories.work import Body, Work, as_object, is_body, is_list, json_words, objects_at, text_of

_DATA = {
    "text", "inlineData", "fileData", "functionCall", "functionResponse", "executableCode", "codeExecutionResult",
    "toolCall", "toolResponse", "inline_data", "file_data", "function_call", "function_response", "executable_code",
    "code_execution_result", "tool_call", "tool_response",
}  # fmt: skip
_CALLS, _RESULTS = ("functionCall", "function_call"), ("functionResponse", "function_response")
_SCALARS = frozenset((str, int, float, bool, type(None)))
_NO_ARGS: Body = {}
_FUNCTIONS = frozenset((*_CALLS, *_RESULTS))
_SIGNATURES = ("thoughtSignature", "thought_signature")
_STRETCH = "s+w+|[cg]rw*"


class GeminiFormat(BlockFormat):
    """Contents of parts. Each content of the model is a turn; its results stand alone in the next one (G1, G9)."""

    key, model, joined = "parts", "model", False

    def looker(self, profile: Profile) -> Look:
        """Return what tells what a content plainly is."""
        names = Fitting(profile.names)

        def look(content: Body) -> Seen:
            role = content.get("role")
            parts: list[Body] | None = content.get("parts")
            if type(parts) is not list or not parts or "type" in content:
                return UNCLEAR
            if role == "model":
                return _seen_by_model(parts, names)
            return _seen_by_user(parts, names) if role == "user" else UNCLEAR

        return look

    def stretch(self, profile: Profile) -> str:
        """Return the pattern of a quiet stretch."""
        return _STRETCH

    def clean(self, work: Work) -> None:
        """Roles, empty parts, names, arguments and responses (G6 to G8, G15, G16, G18)."""
        for index, given in work.to_clean():
            content = given
            parts = objects_at(content.get("parts"), index, "parts")
            role = _role(content, parts)
            if role != (content.get("role") or "user"):
                work.report("G8", index, "edited", f"the role was {content.get('role')}; now {role}")
                content = {**content, "role": role}
            kept = self._clean_parts(work, index, role, parts)
            if not kept:
                if not parts:
                    work.report("G6", index, "dropped", "it had no parts")
                work.messages[index] = None
            else:
                work.messages[index] = content if kept is parts else {**content, "parts": kept}

    def _clean_parts(self, work: Work, index: int, role: str, parts: list[Body]) -> list[Body]:
        kept: list[Body] = []
        for part in parts:
            clean: Body | None = part
            call_key, result_key = _key(part, _CALLS), _key(part, _RESULTS)
            if call_key:
                work.snake_case = work.snake_case or call_key == "function_call"
                clean = _clean_function(work, index, part, call_key, "args")
                if role != "model":
                    call = _held(part, call_key)
                    clean = self.text(f"[Call of {call.get('name')} with {json_words(call.get('args'))}]")
                    work.report("G3", index, "quoted", "a user cannot call", call_id=text_of(call.get("id")))
            elif result_key:
                clean = _clean_function(work, index, part, result_key, "response")
            elif _is_empty(part):
                clean = None
                work.report("G7", index, "dropped", "the part was empty")
            if clean is not None:
                kept.append(clean)
        is_same = len(kept) == len(parts) and all(one is other for one, other in zip(kept, parts, strict=True))
        return parts if is_same else kept

    def settle(self, work: Work) -> None:
        """One content for the results of a turn, users before calls, both ends, signatures (G1, G3, G5, G9, G10)."""
        self.arrange(work)
        settle_ends(work, self, head="G3", tail="G5")
        if work.profile.signatures != "never":
            _sign(work)

    def arrange(self, work: Work) -> None:
        """See to neighbours: one content for results, nothing beside them, a user before calls (G1, G3, G9)."""
        if not self._is_settled(work):
            self._rearrange(work)

    def _is_settled(self, work: Work) -> bool:
        previous = "user"
        if work.is_start:
            previous = "start"
        for content in work.messages:
            if content is None:
                continue
            kind = self._kind(content)
            if (
                kind == "mixed"
                or (kind == "results" and previous == "results")
                or (kind == "calls" and previous in ("model", "start"))
            ):
                return False
            previous = kind
        return True

    def _kind(self, content: Body | None) -> str:
        if content is None:
            return "user"
        parts, results = cast("list[Body]", content["parts"]), 0
        if content.get("role") == "model":
            for part in parts:
                if self.is_call(part):
                    return "calls"
            return "model"
        for part in parts:
            if self.is_result(part):
                results += 1
        return "user" if not results else "results" if results == len(parts) else "mixed"

    def _rearrange(self, work: Work) -> None:
        contents: list[Body | None] = []
        origins: list[int] = []
        previous = "start" if work.is_start else "user"
        for index, content in work.placed():
            for kind, given in self._pieces(work, index, content):
                piece = given
                if kind == "calls" and previous == "model":
                    piece = self._with_words_before(contents, origins, piece)
                    work.report("G3", index, "merged", "what the model said before its calls is one content with them")
                    previous = "user" if contents or not work.is_start else "start"
                last = contents[-1] if contents else None
                if last is not None and kind == previous == "results":
                    contents[-1] = {**last, "parts": [*last["parts"], *piece["parts"]]}
                    work.report("G1", index, "merged", "the results of a turn stand in one content")
                    continue
                if kind == "calls" and previous == "start":
                    contents.append(self.user_message([self.text(NOTHING)]))
                    origins.append(index)
                    work.report("G3", index, "added", "a user content before the first call")
                contents.append(piece)
                origins.append(index)
                previous = kind
        work.rebuild(contents, origins)

    def _with_words_before(self, contents: list[Body | None], origins: list[int], calls: Body) -> Body:
        while contents and self._kind(contents[-1]) == "model":
            before = cast("Body", contents.pop())
            origins.pop()
            calls = {**before, "parts": [*before["parts"], *calls["parts"]]}
        return calls

    def _pieces(self, work: Work, index: int, content: Body) -> list[tuple[str, Body]]:
        kind = self._kind(content)
        if kind != "mixed":
            return [(kind, content)]
        parts = cast("list[Body]", content["parts"])
        results = [part for part in parts if self.is_result(part)]
        others = [part for part in parts if not self.is_result(part)]
        work.report("G9", index, "split", "results stand alone")
        return [("results", {**content, "parts": results}), ("user", {**content, "parts": others})]

    def is_call(self, block: Body) -> bool:
        """Whether a part is a call."""
        return block.get("functionCall") is not None or block.get("function_call") is not None

    def is_result(self, block: Body) -> bool:
        """Whether a part is a result."""
        return block.get("functionResponse") is not None or block.get("function_response") is not None

    def call(self, work: Work, block: Body, place: Place) -> Call | None:
        key = _key(block, _CALLS)
        if not key:
            return None
        held = _held(block, key)
        return Call(place, text_of(held.get("id")), text_of(held.get("name")), work.raw_of(block))

    def result(self, block: Body, place: Place) -> Result | None:
        key = _key(block, _RESULTS)
        if not key:
            return None
        held = _held(block, key)
        return Result(place, text_of(held.get("id")), text_of(held.get("name")), held.get("response"))

    def renamed(self, block: Body, new_id: str | None, name: str | None) -> Body:
        key = _key(block, (*_CALLS, *_RESULTS))
        changed = {**({"id": new_id} if new_id is not None else {}), **({"name": name} if name is not None else {})}
        return {**block, key: {**_held(block, key), **changed}}

    def made(self, work: Work, insert: Made) -> Body:
        response = _as_response(insert.value)
        identity = {"id": insert.id} if insert.id else {}
        key = "function_response" if work.snake_case else "functionResponse"
        return {key: {**identity, "name": insert.call.name, "response": response}}

    def text(self, words: str) -> Body:
        return {"text": words}

    def quoted(self, result: Result) -> Body:
        return self.text(notes.orphan_note(result.id, result.name, json_words(result.value)))


def _seen_by_model(parts: list[Body], names: Fitting) -> Seen:
    seen = SAID
    kind = CALLS
    for part in parts:
        if type(part) is not dict:
            return UNCLEAR
        words = part.get("text")
        if words is not None:
            if type(words) is not str or not words or (len(part) != 1 and _is_function(part)):
                return UNCLEAR
            continue
        call: Body | None = part.get("functionCall")
        if type(call) is not dict or type(call.get("args", _NO_ARGS)) is not dict:
            return UNCLEAR
        if len(part) != 1:
            if len(part) != 2 or type(part.get("thoughtSignature")) is not str:
                return UNCLEAR
            kind = SIGNED
        name, call_id = call.get("name"), call.get("id")
        if type(name) is not str or not names[name] or (call_id is not None and type(call_id) is not str):
            return UNCLEAR
        own = call_id or f"\0{name}"
        seen = (kind, own) if seen is SAID else (kind, *seen[1:], own)
    return seen


def _seen_by_user(parts: list[Body], names: Fitting) -> Seen:
    seen = WORDS
    for part in parts:
        if type(part) is not dict:
            return UNCLEAR
        words = part.get("text")
        if words is not None:
            if type(words) is not str or not words or (len(part) != 1 and _is_function(part)):
                return UNCLEAR
            continue
        result: Body | None = part.get("functionResponse")
        if type(result) is not dict or len(part) != 1 or not _is_plain(result.get("response")):
            return UNCLEAR
        name, call_id = result.get("name"), result.get("id")
        if type(name) is not str or not names[name] or (call_id is not None and type(call_id) is not str):
            return UNCLEAR
        own = call_id or f"\0{name}"
        seen = (RESULTS, own) if seen is WORDS else (*seen, own)
    return seen if seen is WORDS or len(seen) == len(parts) + 1 else UNCLEAR


def _is_function(part: Body) -> bool:
    return not part.keys().isdisjoint(_FUNCTIONS)


def _is_plain(response: Body | None) -> bool:
    """Whether a response is an object without a reference; of one that holds others all are looked at."""
    if type(response) is not dict or "$ref" in response:
        return False
    for value in response.values():
        if type(value) not in _SCALARS:
            return not _holds_reference(response)
    return True


def _role(content: Body, parts: list[Body]) -> str:
    """Return the role that a content has, or must have had: only the model calls (G8)."""
    role = content.get("role")
    if role in ("user", "model"):
        return text_of(role)
    return "model" if role == "assistant" or any(_key(part, _CALLS) for part in parts) else "user"


def _key(part: Body, keys: tuple[str, ...]) -> str:
    for key in keys:
        if part.get(key) is not None:
            return key
    return ""


def _held(part: Body, key: str) -> Body:
    held: object = part.get(key)
    return held if is_body(held) else {}


def _is_empty(part: Body) -> bool:
    if part.get("text") == "":
        return not is_signed(part)
    return all(part.get(key) is None for key in part.keys() & _DATA)


def _clean_function(work: Work, index: int, part: Body, key: str, value_key: str) -> Body:
    given = _held(part, key)
    held = work.with_text_id(given, "id", index)
    if held is not given:
        part = {**part, key: held}
    name, call_id = text_of(held.get("name")), text_of(held.get("id"))
    fitting = work.fit_name(name, work.profile.names) if name or value_key == "args" else name
    changed: Body = {}
    raw: str | None = None
    if fitting != name:
        changed["name"] = fitting
        work.report("G18" if name else "G15", index, "renamed", f"now {fitting}", call_id=call_id, name=name)
    value: object = held.get(value_key)
    if value is not None and not is_body(value):
        if value_key == "args":
            changed[value_key], raw = as_object(value)
        else:
            changed[value_key] = _as_response(value)
        work.report("G16", index, "edited", f"{value_key} was no object", call_id=call_id, name=name)
    elif value_key == "response" and value and _holds_reference(value):
        changed[value_key] = _as_response(value)
        work.report("G16", index, "edited", "it held a $ref, which is read as one", call_id=call_id, name=name)
    if not changed:
        return part
    part = {**part, key: {**held, **changed}}
    work.keep_raw(part, raw)
    return part


def _as_response(value: object) -> Body:
    """Return a result as an object without references in it (G16)."""
    if _holds_reference(value):
        return {"output": json_words(value)}
    return value if is_body(value) else {"output": value}


def _holds_reference(value: object) -> bool:
    waiting: list[object] = [value]
    while waiting:
        item = waiting.pop()
        if is_body(item):
            if "$ref" in item:
                return True
            waiting += item.values()
        elif is_list(item):
            waiting += item
    return False


def _sign(work: Work) -> None:
    """Put the stand-in on unsigned first calls since the user last spoke (G10, G11); never on their siblings.

    Models before Gemini 3 want none, and sign the first part of an answer, whatever it is. So where the model is not
    named, a call gets one only if others in the history have one, and nothing else in its content has.
    """
    unsigned = list(_unsigned_calls(work))
    if not unsigned:
        return
    is_wanted = _are_signatures_wanted(work)
    if is_wanted is None:
        unsigned = [(place, first) for place, first in unsigned if not _is_part_signed(work.messages[place])]
        is_wanted = work.profile.signatures == "given" or any(map(holds_signed_call, work.messages))
    for place, first in unsigned if is_wanted else ():
        content = cast("Body", work.messages[place])
        parts = cast("list[Body]", content["parts"])
        held_as = _key(parts[first], _CALLS)
        key = _SIGNATURES[1] if held_as == "function_call" else _SIGNATURES[0]
        signed = {**parts[first], key: NO_SIGNATURE}
        work.messages[place] = {**content, "parts": [*parts[:first], signed, *parts[first + 1 :]]}
        call = _held(parts[first], held_as)
        known = "a call of the current turn had no signature; it has the documented stand-in"
        where = work.origins[place]
        work.report("G10", where, "edited", known, call_id=text_of(call.get("id")), name=text_of(call.get("name")))


def _unsigned_calls(work: Work) -> Iterator[tuple[int, int]]:
    """Yield where the first call of a step has no signature, from the last step back to the user's last words."""
    for place in range(len(work.messages) - 1, -1, -1):
        content = work.messages[place]
        if content is None:
            continue
        parts = cast("list[Body]", content["parts"])
        if content.get("role") != "model":
            if not any(_key(part, _RESULTS) for part in parts):
                return
            continue
        first = next((number for number, part in enumerate(parts) if _key(part, _CALLS)), None)
        if first is not None and not is_signed(parts[first]):
            yield place, first


def _are_signatures_wanted(work: Work) -> bool | None:
    """Whether the model insists on signatures, by its name; None if that is not known."""
    if work.profile.signatures == "always":
        return True
    model = text_of(work.settings.get("model"))
    return wants_signatures(model) if "gemini-" in model else None


def holds_signed_call(content: Body | None) -> bool:
    """Whether a content holds a call with a signature."""
    return any(is_signed(part) and bool(_key(part, _CALLS)) for part in _parts(content))


def _is_part_signed(content: Body | None) -> bool:
    return any(map(is_signed, _parts(content)))


def _parts(content: Body | None) -> list[Body]:
    parts: object = content.get("parts") if content is not None else None
    return [part for part in parts if is_body(part)] if is_list(parts) else []


def is_signed(part: Body) -> bool:
    """Whether a part has a signature, be it the stand-in."""
    return any(part.get(key) for key in _SIGNATURES)
