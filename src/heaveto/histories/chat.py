"""OpenAI Chat Completions, the servers that speak it, and Mistral: messages, results as messages of their own."""

from __future__ import annotations

from typing import cast

from heaveto.core import notes
from heaveto.core.repair import GAP, Block, Call, Made, Moved, Plan, Quoted, Result, Turn
from heaveto.core.repair.steps import Insert, Step
from heaveto.core.wire_marks import TELLING
from heaveto.core.wire_names import NOTHING, UNKNOWN_TOOL
from heaveto.errors import InvalidHistoryError
from heaveto.histories.glance import CALLS, RESULTS, SAID, UNCLEAR, WORDS, Fitting, Look, Seen
from heaveto.histories.profiles import Profile
from heaveto.histories.work import Body, Work, as_object, is_body, json_words, objects_at, text_of, texts_of, words_of

_FOREIGN = TELLING - {"tool_calls", "function_call"}
_OWN_BLOCKS = frozenset(("text", "image_url", "input_audio", "file"))
_BRIDGE = "Understood."


class ChatFormat:
    """Reads and writes messages with ``tool_calls`` and the role ``tool``."""

    def is_divisible(self, messages: list[Body], settings: Body) -> bool:
        """Always: nothing in a message but the ids of its calls concerns another turn."""
        return True

    def looker(self, profile: Profile) -> Look:
        """Return what tells what a message plainly is."""
        names = Fitting(profile.names)
        needs_reasoning = profile.reasoning_content == "always"
        speakers = ("user",) if profile.bridged or not profile.within_turns else ("user", "system", "developer")

        def look(message: Body) -> Seen:
            role, content = message.get("role"), message.get("content")
            if len(message) > 2 and not message.keys().isdisjoint(_FOREIGN):
                return UNCLEAR
            if role == "assistant":
                calls = message.get("tool_calls")
                if calls is None:
                    return SAID if type(content) is str and content else UNCLEAR
                if (needs_reasoning and not _reasons(message)) or (content is not None and type(content) is not str):
                    return UNCLEAR
                return _seen_calls(calls, names, profile)
            if role == "tool":
                call_id = message.get("tool_call_id")
                return (RESULTS, call_id) if type(call_id) is str and call_id and type(content) is str else UNCLEAR
            if type(content) is list:
                return WORDS if role == "user" and all(map(_is_own, cast("list[object]", content))) else UNCLEAR
            return WORDS if content is not None and role in speakers else UNCLEAR

        return look

    def stretch(self, profile: Profile) -> str:
        """Return the pattern of a quiet stretch."""
        return "s+w+|s*cr+" if profile.bridged else "s+w+|s*cr+w*"

    def clean(self, work: Work) -> None:
        """Empty lists and nulls, names, arguments (O7, O9, O12, A8, M6)."""
        messages = work.messages
        for index, given in work.to_clean():
            message = given
            role = message.get("role")
            if role == "assistant":
                messages[index] = _clean_assistant(work, index, message)
                continue
            if type(role) is not str:
                raise InvalidHistoryError(index, "has no role; is it a message of this format?")
            if role == "tool":
                messages[index] = message = work.with_text_id(message, "tool_call_id", index)
            if (content := message.get("content")) is None:
                messages[index] = {**message, "content": ""}
                work.report(_rule(work, "O9"), index, "edited", "content was null")
            elif role == "tool" and type(content) is list:
                work.has_images = work.has_images or bool(_images(message))

    def read(self, work: Work) -> list[Step]:
        """Return calls and results in order."""
        steps: list[Step] = []
        for index, message in enumerate(work.messages):
            if message is None:
                continue
            role = message.get("role")
            if role == "tool":
                call_id, name = text_of(message.get("tool_call_id")), text_of(message.get("name"))
                steps.append(Block((Result((index, 0), call_id, name, message.get("content")),)))
            elif role == "assistant" and message.get("tool_calls"):
                steps.append(Turn(_calls(work, index, message), (index, 0)))
            else:
                steps.append(GAP)
        return steps

    def apply(self, work: Work, plan: Plan) -> None:
        """Take out, rename, put in."""
        messages: list[Body | None] = []
        origins: list[int] = []
        for index, message in enumerate(work.messages):
            place = (index, 0)
            if message is not None and place not in plan.removed:
                messages.append(_renamed(index, message, plan))
                origins.append(index)
            for insert in plan.inserts.get(place, ()):
                messages.append(_inserted(work, insert))
                origins.append(index)
        work.rebuild(messages, origins)

    def settle(self, work: Work) -> None:
        """Images behind results, bridges, both ends (O14, M4, M5, M8)."""
        if work.profile.text_results and work.has_images:
            _move_images(work)
        if work.profile.bridged:
            _settle_order(work)
        if work.profile.reasoning_content != "unasked":
            _add_reasoning(work)


def _is_own(part: object) -> bool:
    return is_body(part) and part.get("type") in _OWN_BLOCKS


def _reasons(message: Body) -> bool:
    return isinstance(message.get("reasoning_content"), str)


def _seen_calls(calls: list[Body], names: Fitting, profile: Profile) -> Seen:
    if type(calls) is not list or not calls:
        return UNCLEAR
    seen = SAID
    for call in calls:
        if type(call) is not dict or call.get("type") == "custom":
            return UNCLEAR
        function: Body = call.get("function") or {}
        call_id = call.get("id")
        if type(call_id) is not str or not call_id or type(function) is not dict:
            return UNCLEAR
        name, arguments = function.get("name"), function.get("arguments")
        if type(name) is not str or type(arguments) is not str or not names[name]:
            return UNCLEAR
        if profile.json_arguments and (not arguments or as_object(arguments)[1] is not None):
            return UNCLEAR
        seen = (CALLS, call_id) if seen is SAID else (*seen, call_id)
    return seen


def _rule(work: Work, rule: str) -> str:
    return {"O9": "M6", "O12": "M7", "O14": "M9"}.get(rule, rule) if work.profile.bridged else rule


def _clean_assistant(work: Work, index: int, message: Body) -> Body | None:
    calls = message.get("tool_calls")
    if calls:
        return _clean_calls(work, index, message)
    if calls is not None:
        message = {key: value for key, value in message.items() if key != "tool_calls"}
        work.report("O7", index, "edited", "tool_calls was empty")
    if message.get("content") or message.get("function_call") or message.get("audio"):
        return message
    if work.profile.bridged and (refusal := text_of(message.get("refusal"))):
        work.report("M6", index, "edited", "its refusal is its content now")
        return {**message, "content": refusal}
    if work.profile.bridged:
        work.report("M6", index, "dropped", "it had neither content nor calls")
        return None
    if message.get("content") is None:
        message = {**message, "content": ""}
        work.report("O9", index, "edited", "content was null")
    return message


def _clean_calls(work: Work, index: int, message: Body) -> Body:
    calls = objects_at(message["tool_calls"], index, "tool_calls")
    cleaned: list[Body] | None = None
    for number, call in enumerate(calls):
        clean = _clean_call(work, index, call)
        if clean is not call:
            cleaned = cleaned or list(calls)
            cleaned[number] = clean
    if cleaned is not None:
        message = {**message, "tool_calls": cleaned}
    return message


def _clean_call(work: Work, index: int, call: Body) -> Body:
    call = work.with_text_id(call, "id", index)
    kind = _kind(call)
    function: object = call.get(kind)
    held = function if is_body(function) else {}
    changed: Body = {}
    raw: str | None = None
    name = text_of(held.get("name"))
    fitting = work.fit_name(name, work.profile.names)
    if fitting != name:
        changed["name"] = fitting
        work.report(_rule(work, "O12"), index, "renamed", f"now {fitting}", call_id=text_of(call.get("id")), name=name)
    arguments = held.get("arguments")
    if kind == "function" and (work.profile.json_arguments or not isinstance(arguments, str)):
        value, raw = as_object(arguments)
        if raw is not None or not isinstance(arguments, str) or not arguments:
            changed["arguments"] = json_words(value)
            known = "arguments were no text" if raw is None else "arguments were no JSON object"
            work.report("A8", index, "edited", known, call_id=text_of(call.get("id")), name=name)
    if not changed:
        return call
    call = {**call, kind: {**held, **changed}}
    work.keep_raw(call, raw)
    return call


def _kind(call: Body) -> str:
    return "custom" if call.get("type") == "custom" else "function"


def _calls(work: Work, index: int, message: Body) -> tuple[Call, ...]:
    calls: list[Call] = []
    for number, call in enumerate(cast("list[Body]", message["tool_calls"])):
        name = text_of(call[_kind(call)].get("name"))
        calls.append(Call((index, number), text_of(call.get("id")), name, work.raw_of(call)))
    return tuple(calls)


def _renamed(index: int, message: Body, plan: Plan) -> Body:
    if message.get("role") == "tool":
        new_id = plan.ids.get((index, 0))
        return message if new_id is None else {**message, "tool_call_id": new_id}
    if not plan.ids or message.get("role") != "assistant" or not message.get("tool_calls"):
        return message
    calls = cast("list[Body]", message["tool_calls"])
    ids = [plan.ids.get((index, number)) for number in range(len(calls))]
    if not any(ids):
        return message
    renamed = [call if new_id is None else {**call, "id": new_id} for call, new_id in zip(calls, ids, strict=True)]
    return {**message, "tool_calls": renamed}


def _inserted(work: Work, insert: Insert) -> Body:
    match insert:
        case Made():
            named = {"name": insert.call.name or UNKNOWN_TOOL} if work.profile.bridged else {}
            return {"role": "tool", "tool_call_id": insert.id, **named, "content": words_of(insert.value)}
        case Moved():
            message = _message_at(work, insert.result)
            return message if message.get("tool_call_id") == insert.id else {**message, "tool_call_id": insert.id}
        case Quoted(result=result):
            text = notes.orphan_note(result.id, result.name, texts_of(result.value) or json_words(result.value))
            return {"role": "user", "content": text}


def _message_at(work: Work, result: Result) -> Body:
    return cast("Body", work.messages[result.place[0]])


# --- neighbours and ends --------------------------------------------------------------------------------------------


def _move_images(work: Work) -> None:
    """Only users may send images, and only after the whole run of results (O14)."""
    messages: list[Body | None] = []
    origins: list[int] = []
    held: list[Body] = []
    at = 0
    for index, message in [*work.placed(), (-1, {})]:
        if held and message.get("role") != "tool":
            messages.append({"role": "user", "content": held})
            origins.append(at)
            held = []
        if index < 0:
            break
        found = _images(message)
        messages.append(_without_images(message, len(held)) if found else message)
        origins.append(index)
        held += found
        at = index
        if found:
            known = f"{len(found)} images moved behind the results"
            work.report(_rule(work, "O14"), index, "moved", known, call_id=text_of(message.get("tool_call_id")))
    work.rebuild(messages, origins)


def _images(message: Body | None) -> list[Body]:
    if message is None or message.get("role") != "tool" or not isinstance(message.get("content"), list):
        return []
    return [part for part in cast("list[object]", message["content"]) if is_body(part) and _is_image(part)]


def _is_image(part: Body) -> bool:
    return part.get("type") not in ("text", "refusal")


def _without_images(message: Body, before: int) -> Body:
    parts: list[object] = []
    for part in cast("list[object]", message["content"]):
        if is_body(part) and _is_image(part):
            before += 1
            parts.append({"type": "text", "text": f"[image {before} follows the results]"})
        else:
            parts.append(part)
    return {**message, "content": parts}


def _settle_order(work: Work) -> None:
    """Mistral's order of roles: nothing but an answer behind results, the system at the start, a user at the end."""
    messages: list[Body | None] = []
    origins: list[int] = []
    previous = "" if work.is_start else "user"
    changed = False
    for index, message in work.placed():
        role = message.get("role")
        told = message
        if role == "system" and previous in ("tool", "assistant"):
            told, role, changed = {**message, "role": "user"}, "user", True
            work.report("M4", index, "edited", "a system message may not stand here; it is the user's now")
        bridge = None
        if previous == "tool" and role == "user":
            bridge = {"role": "assistant", "content": _BRIDGE}
            work.report("M4", index, "added", "an answer between results and the user")
        elif not previous and role == "assistant" and message.get("tool_calls"):
            bridge = {"role": "user", "content": NOTHING}
            work.report("M8", index, "added", "a user message at the start")
        if bridge is not None:
            messages.append(bridge)
            origins.append(index)
            changed = True
        messages.append(told)
        origins.append(index)
        previous = text_of(role)
    if previous == "assistant" and not work.left_open and not (messages[-1] or {}).get("prefix"):
        messages.append({"role": "user", "content": notes.CONTINUE})
        origins.append(origins[-1])
        changed = True
        work.report("M5", origins[-1], "added", "a user message at the end")
    if changed:
        work.rebuild(messages, origins)


def _add_reasoning(work: Work) -> None:
    """Turns that call have ``reasoning_content``, if only an empty one: all, or those since the user last spoke."""
    for place in range(len(work.messages) - 1, -1, -1):
        message = work.messages[place]
        if message is None:
            continue
        if message.get("role") == "user" and work.profile.reasoning_content == "current turn":
            return
        if message.get("role") == "assistant" and message.get("tool_calls") and not _reasons(message):
            work.messages[place] = {**message, "reasoning_content": ""}
            known = "a turn that calls must have reasoning_content; it is empty"
            work.report("reasoning_content", work.origins[place], "edited", known)
