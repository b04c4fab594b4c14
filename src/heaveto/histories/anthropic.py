"""Anthropic Messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from heaveto.core import notes
from heaveto.core.repair import Call, Made, Result
from heaveto.core.repair.steps import Place
from heaveto.core.wire_kinds import THINKING
from heaveto.core.wire_marks import TELLING
from heaveto.errors import InvalidHistoryError
from heaveto.histories.blocks import BlockFormat, set_apart, settle_ends
from heaveto.histories.glance import CALLS, RESULTS, SAID, UNCLEAR, WORDS, Fitting, Look, Seen
from heaveto.histories.profiles import Profile
from heaveto.histories.server_tools import drop_unpaired, is_own, is_paused
from heaveto.histories.work import (
    Body,
    Work,
    as_object,
    is_body,
    is_list,
    json_words,
    objects_at,
    text_of,
    texts_of,
    words_of,
)

BREAKPOINTS = 4
_ROLES = ("user", "assistant", "system")

_ATTACHED = ("image", "document")
_STRETCH = "s+w+|s*crw*"


class AnthropicFormat(BlockFormat):
    """Messages of blocks; messages of one role in a row are one turn (A23)."""

    def looker(self, profile: Profile) -> Look:
        """Return what tells what a message plainly is."""
        names, alone = Fitting(profile.names), profile.results_alone

        def look(message: Body) -> Seen:
            role = message.get("role")
            content: list[Body] | str | None = message.get("content")
            if len(message) > 2 and not message.keys().isdisjoint(TELLING):
                return UNCLEAR
            if role != "user" and role != "assistant":
                return UNCLEAR
            if type(content) is str:
                said = WORDS if role == "user" else SAID
                return said if content and not content.isspace() else UNCLEAR
            if type(content) is not list or not content:
                return UNCLEAR
            return _seen_by_user(content, alone) if role == "user" else _seen_by_model(content, names)

        return look

    def stretch(self, profile: Profile) -> str:
        """Return the pattern of a quiet stretch."""
        return _STRETCH

    def clean(self, work: Work) -> None:
        """Empty things, unsigned thinking, names, inputs, the provider's own calls (A7 to A11, A16 to A18)."""
        own_tools = False
        for index, message in work.to_clean():
            if message.get("role") not in _ROLES:
                raise InvalidHistoryError(
                    index, f"has the role {message.get('role')!r}, not one of {', '.join(_ROLES)}"
                )
            content = message.get("content")
            if isinstance(content, str):
                if not content.strip():
                    work.messages[index] = None
                    work.report("A9", index, "dropped", "it had no content")
                continue
            blocks = objects_at(content, index, "content")
            is_model = message.get("role") == "assistant"
            own_tools = own_tools or any(map(is_own, blocks))
            kept = self._clean_blocks(work, index, is_model, blocks)
            if not kept:
                work.messages[index] = None
                if not blocks:
                    work.report("A9", index, "dropped", "it had no content")
            elif kept is not blocks:
                work.messages[index] = {**message, "content": kept}
        if own_tools:
            drop_unpaired(work)

    def _clean_blocks(self, work: Work, index: int, is_model: bool, blocks: list[Body]) -> list[Body]:
        kept: list[Body] = []
        images: list[Body] = []
        changed = False
        for block in blocks:
            clean: Body | None = block
            match block.get("type"):
                case "text" if not text_of(block.get("text")).strip():
                    clean = None
                    work.report("A10", index, "dropped", "the text was blank")
                case "tool_use" if is_model:
                    clean = _clean_call(work, index, block)
                case "tool_use":
                    clean = self.text(f"[Call of {block.get('name')} with {json_words(block.get('input'))}]")
                    work.report("A27", index, "quoted", "a user cannot call", call_id=text_of(block.get("id")))
                case "tool_result":
                    clean = work.with_text_id(block, "tool_use_id", index)
                    if clean.get("is_error") is True:
                        clean = _clean_error(work, index, clean, images)
                case "thinking" if not block.get("signature"):
                    clean = None
                    work.report("A16", index, "dropped", "thinking without a signature")
                case "redacted_thinking" if not block.get("data"):
                    clean = None
                    work.report("A16", index, "dropped", "redacted thinking without data")
                case kind if kind in THINKING and block.get("cache_control"):
                    clean = _unmarked(block)  # the mark is the request's, and not of what was signed
                    work.report("A26", index, "edited", "thinking has no cache_control")
                case _:
                    pass
            changed = changed or clean is not block
            if clean is not None:
                kept.append(clean)
        if changed and all(self.is_thinking(block) for block in kept):
            return []  # thinking does not stand alone: it goes with what it led to
        return [*kept, *images] if changed else blocks

    def settle(self, work: Work) -> None:
        """Results alone where that is wanted, both ends, system messages, marks for the cache (A12, A24 to A26)."""
        _limit_breakpoints(work)
        if work.profile.results_alone:
            set_apart(work, self, _is_result, "A3")
        work.left_open = work.left_open or is_paused(work.messages)
        settle_ends(work, self, head="A24", tail="A12")
        if any(message is not None and message.get("role") == "system" for message in work.messages):
            _slide_systems(work)

    def call(self, work: Work, block: Body, place: Place) -> Call | None:
        if block.get("type") != "tool_use":
            return None
        return Call(place, text_of(block.get("id")), text_of(block.get("name")), work.raw_of(block))

    def result(self, block: Body, place: Place) -> Result | None:
        if block.get("type") != "tool_result":
            return None
        return Result(place, text_of(block.get("tool_use_id")), "", block.get("content"))

    def renamed(self, block: Body, new_id: str | None, name: str | None) -> Body:
        return {**block, "id" if block.get("type") == "tool_use" else "tool_use_id": new_id}

    def made(self, work: Work, insert: Made) -> Body:
        block = {"type": "tool_result", "tool_use_id": insert.id, "content": words_of(insert.value)}
        return {**block, "is_error": True} if insert.is_error else block

    def text(self, words: str) -> Body:
        return {"type": "text", "text": words}

    def quoted(self, result: Result) -> Body:
        return self.text(notes.orphan_note(result.id, result.name, texts_of(result.value) or json_words(result.value)))

    def is_thinking(self, block: Body) -> bool:
        return block.get("type") in THINKING


def _seen_by_model(blocks: list[Body], names: Fitting) -> Seen:
    seen = SAID
    for block in blocks:
        if type(block) is not dict or "cache_control" in block:
            return UNCLEAR  # marks for the cache have a rule for all of them together (A26)
        kind = block.get("type")
        if kind == "text":
            words = block.get("text")
            if type(words) is not str or not words or words.isspace():
                return UNCLEAR
        elif kind == "tool_use":
            name, call_id = block.get("name"), block.get("id")
            if type(name) is not str or type(call_id) is not str or not call_id or not names[name]:
                return UNCLEAR
            if type(block.get("input")) is not dict:
                return UNCLEAR
            seen = (CALLS, call_id) if seen is SAID else (*seen, call_id)
        elif not (kind == "thinking" and block.get("signature")):
            return UNCLEAR
    return seen


def _seen_by_user(blocks: list[Body], alone: bool) -> Seen:
    """Results, and what stands behind them where it may (A3)."""
    seen = WORDS
    has_words = False
    for block in blocks:
        if type(block) is not dict or "cache_control" in block:
            return UNCLEAR
        kind = block.get("type")
        if kind == "tool_result":
            call_id, held = block.get("tool_use_id"), block.get("content")
            if has_words or type(call_id) is not str or not call_id or not _says_something(block):
                return UNCLEAR
            if type(held) is list and not all(map(_is_plain_within, cast("list[object]", held))):
                return UNCLEAR
            seen = (RESULTS, call_id) if seen is WORDS else (*seen, call_id)
            continue
        has_words = True
        if kind == "text":
            words = block.get("text")
            if type(words) is not str or not words or words.isspace():
                return UNCLEAR
        elif kind not in _ATTACHED:
            return UNCLEAR
    return UNCLEAR if has_words and alone and seen is not WORDS else seen


def _is_plain_within(block: object) -> bool:
    """Whether a block of a result concerns nothing but itself: no mark (A26), no tool that must be declared (A20)."""
    return is_body(block) and "cache_control" not in block and block.get("type") != "tool_reference"


def _says_something(result: Body) -> bool:
    """Whether a result is no error, or one that says so in words (A11)."""
    content = result.get("content")
    return not result.get("is_error") or (type(content) is str and content != "")


def breakpoints_in(messages: Iterable[object]) -> int:
    """Return how many blocks are marked with ``cache_control``, those within results included."""
    return sum(len(_marked(message)) for message in messages)


def _marked(message: object) -> list[tuple[int, int]]:
    """Return where marks stand: the number of the block, and that of the one within it, -1 for itself."""
    found: list[tuple[int, int]] = []
    for number, block in enumerate(_listed(message.get("content")) if is_body(message) else ()):
        held = block.get("content")
        if type(held) is list:
            inner = enumerate(cast("list[object]", held))
            found += [(number, place) for place, one in inner if is_body(one) and one.get("cache_control")]
        if block.get("cache_control"):
            found.append((number, -1))
    return found


def _limit_breakpoints(work: Work) -> None:
    """Of too many marks the oldest go (A26)."""
    beside = [*_listed(work.settings.get("system")), *_listed(work.settings.get("tools"))]
    excess = breakpoints_in(work.messages) + sum(bool(block.get("cache_control")) for block in beside) - BREAKPOINTS
    for place, message in enumerate(work.messages):
        if excess <= 0:
            return
        marked = _marked(message)[:excess]
        if message is None or not marked:
            continue
        blocks = list(cast("list[Body]", message["content"]))
        for number, inner in marked:
            blocks[number] = _unmarked(blocks[number]) if inner < 0 else _unmarked_within(blocks[number], inner)
            work.report("A26", work.origins[place], "edited", f"a request has no more than {BREAKPOINTS} cache_control")
        work.messages[place] = {**message, "content": blocks}
        excess -= len(marked)


def _unmarked(block: Body) -> Body:
    return {key: value for key, value in block.items() if key != "cache_control"}


def _unmarked_within(block: Body, place: int) -> Body:
    held = list(cast("list[Body]", block["content"]))
    held[place] = _unmarked(held[place])
    return {**block, "content": held}


def _listed(value: object) -> list[Body]:
    return [block for block in value if is_body(block)] if is_list(value) else []


def _is_result(block: Body) -> bool:
    return block.get("type") == "tool_result"


def _clean_call(work: Work, index: int, block: Body) -> Body:
    block = work.with_text_id(block, "id", index)
    name, call_id = text_of(block.get("name")), text_of(block.get("id"))
    fitting = work.fit_name(name, work.profile.names)
    if fitting != name:
        work.report("A7", index, "renamed", f"now {fitting}", call_id=call_id, name=name)
        block = {**block, "name": fitting}
    if not isinstance(block.get("input"), dict):
        value, raw = as_object(block.get("input"))
        block = {**block, "input": value}
        work.keep_raw(block, raw)
        work.report("A8", index, "edited", "its input was no JSON object", call_id=call_id, name=name)
    return block


def _clean_error(work: Work, index: int, block: Body, images: list[Body]) -> Body:
    """An error says something, and has no images in it (A11, A11')."""
    content, call_id = block.get("content"), text_of(block.get("tool_use_id"))
    if isinstance(content, list):
        parts = objects_at(cast("list[object]", content), index, "content")
        found = [part for part in parts if part.get("type") == "image"]
        if found:
            images += found
            content = [part for part in parts if part.get("type") != "image"]
            content = content or [{"type": "text", "text": "[the image follows]"}]
            work.report("A11'", index, "moved", "images within an error stand behind it now", call_id=call_id)
            block = {**block, "content": content}
    if not content:
        work.report("A11", index, "edited", "the error said nothing", call_id=call_id)
        block = {**block, "content": "This call failed."}
    return block


def _slide_systems(work: Work) -> None:
    """A message of the system stands right before the model speaks, or at the end: it slides past users (A25)."""
    messages: list[Body | None] = []
    origins: list[int] = []
    waiting: list[tuple[int, Body]] = []
    for index, message in work.placed():
        if message.get("role") == "system":
            waiting.append((index, message))
            continue
        if message.get("role") == "assistant":
            origins += [at for at, _ in waiting]
            messages += [system for _, system in waiting]
            waiting = []
        elif waiting:
            work.report("A25", waiting[-1][0], "moved", "a system message stands right before the model speaks")
        messages.append(message)
        origins.append(index)
    work.rebuild([*messages, *(system for _, system in waiting)], [*origins, *(at for at, _ in waiting)])
