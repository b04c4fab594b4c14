"""Bedrock Converse."""

from __future__ import annotations

from itertools import pairwise

from heaveto.core import notes
from heaveto.core.repair import Call, Made, Result
from heaveto.core.repair.steps import Place
from heaveto.core.wire_marks import TELLING
from heaveto.core.wire_names import NOTHING
from heaveto.errors import InvalidHistoryError
from heaveto.histories.blocks import BlockFormat, set_apart, settle_ends
from heaveto.histories.glance import CALLS, RESULTS, SAID, UNCLEAR, WORDS, Fitting, Look, Seen
from heaveto.histories.profiles import Profile
from heaveto.histories.work import Body, Work, as_object, is_body, json_words, objects_at, text_of, texts_of, words_of

_ROLES = ("user", "assistant")
_ATTACHED = ("document", "video")
_STRETCH = "sw|cr"


class BedrockFormat(BlockFormat):
    """Messages of blocks that are objects with one key; roles alternate (B6)."""

    def looker(self, profile: Profile) -> Look:
        """Return what tells what a message plainly is."""
        names, alone = Fitting(profile.names), profile.results_alone

        def look(message: Body) -> Seen:
            role = message.get("role")
            content: list[Body] | str | None = message.get("content")
            if len(message) > 2 and not message.keys().isdisjoint(TELLING):
                return UNCLEAR
            if type(content) is not list or not content:
                return UNCLEAR
            if role == "assistant":
                return _seen_by_model(content, names)
            return _seen_by_user(content, alone) if role == "user" else UNCLEAR

        return look

    def stretch(self, profile: Profile) -> str:
        """Return the pattern of a quiet stretch."""
        return _STRETCH

    def clean(self, work: Work) -> None:
        """Blank texts, unsigned thinking, names, inputs, results that say nothing (B5, B7 to B9)."""
        for index, message in work.to_clean():
            if message.get("role") not in _ROLES:
                raise InvalidHistoryError(
                    index, f"has the role {message.get('role')!r}, not one of {', '.join(_ROLES)}"
                )
            blocks = objects_at(message.get("content"), index, "content")
            kept = self._clean_blocks(work, index, blocks)
            if not kept:
                if not blocks:
                    work.report("B7", index, "dropped", "it had no content")
                work.messages[index] = None
            elif kept is not blocks:
                work.messages[index] = {**message, "content": kept}

    def _clean_blocks(self, work: Work, index: int, blocks: list[Body]) -> list[Body]:
        kept: list[Body] = []
        for given in blocks:
            block = _with_text_id(work, index, given)
            clean: Body | None = block
            if "text" in block and not text_of(block["text"]).strip():
                clean = None
                work.report("B7", index, "dropped", "the text was blank")
            elif "toolUse" in block:
                clean = _clean_call(work, index, block)
            elif "toolResult" in block and not _held(block, "toolResult").get("content"):
                result = _held(block, "toolResult")
                clean = {**block, "toolResult": {**result, "content": [{"text": "Nothing was returned."}]}}
                work.report("B5", index, "edited", "the result said nothing", call_id=text_of(result.get("toolUseId")))
            elif "reasoningContent" in block and not _is_signed(block):
                clean = None
                work.report("A16", index, "dropped", "thinking without a signature")
            if clean is not None:
                kept.append(clean)
        is_same = len(kept) == len(blocks) and all(one is other for one, other in zip(kept, blocks, strict=True))
        if not is_same and all(self.is_thinking(block) for block in kept):
            return []
        return blocks if is_same else kept

    def settle(self, work: Work) -> None:
        """Alternating roles, results alone where that is wanted, both ends (A12, B6, B10)."""
        self._alternate(work)
        alone = work.profile.results_alone
        set_apart(
            work, self, lambda block: "toolResult" in block, "B10", "assistant", unless=None if alone else _is_light
        )
        if alone:
            set_apart(work, self, lambda block: "toolUse" in block, "B10", "user", unless=None)
        settle_ends(work, self, head="B6", tail="A12")

    def _alternate(self, work: Work) -> None:
        roles = [message.get("role") for message in work.messages if message is not None]
        if not any(one == other for one, other in pairwise(roles)):
            return
        messages: list[Body | None] = []
        origins: list[int] = []
        for index, message in work.placed():
            last = messages[-1] if messages else None
            if last is None or last.get("role") != message.get("role"):
                messages.append(message)
                origins.append(index)
            elif self.thinks(last) and self.thinks(message):
                messages += [self.user_message([self.text(NOTHING)]), message]
                origins += [index, index]
                work.report("B6", index, "added", "a user message between two answers with thinking (A15)")
            else:
                messages[-1] = {**last, "content": [*last["content"], *message["content"]]}
                work.report("B6", index, "merged", "two messages of one role stood in a row")
        work.rebuild(messages, origins)

    def joins(self, work: Work, group: list[Body], message: Body) -> bool:
        """Messages in a row become one, but for those that both hold thinking (A15)."""
        return not (self.thinks(message) and any(self.thinks(other) for other in group))

    def call(self, work: Work, block: Body, place: Place) -> Call | None:
        if "toolUse" not in block or _held(block, "toolUse").get("type") == "server_tool_use":
            return None
        call = _held(block, "toolUse")
        return Call(place, text_of(call.get("toolUseId")), text_of(call.get("name")), work.raw_of(block))

    def result(self, block: Body, place: Place) -> Result | None:
        if "toolResult" not in block or _held(block, "toolResult").get("type") == "server_tool_use":
            return None
        result = _held(block, "toolResult")
        return Result(place, text_of(result.get("toolUseId")), "", result.get("content"))

    def renamed(self, block: Body, new_id: str | None, name: str | None) -> Body:
        key = "toolUse" if "toolUse" in block else "toolResult"
        return {**block, key: {**_held(block, key), "toolUseId": new_id}}

    def made(self, work: Work, insert: Made) -> Body:
        result = {"toolUseId": insert.id, "content": [{"text": words_of(insert.value)}]}
        return {"toolResult": {**result, "status": "error"} if insert.is_error else result}

    def text(self, words: str) -> Body:
        return {"text": words}

    def quoted(self, result: Result) -> Body:
        words = texts_of(result.value) or json_words(result.value)
        return self.text(notes.orphan_note(result.id, result.name, words))

    def is_thinking(self, block: Body) -> bool:
        return "reasoningContent" in block


def _seen_by_model(blocks: list[Body], names: Fitting) -> Seen:
    seen = SAID
    for block in blocks:
        if type(block) is not dict or len(block) != 1:
            return UNCLEAR
        if (words := block.get("text")) is not None:
            if type(words) is not str or not words or words.isspace():
                return UNCLEAR
        elif "toolUse" in block:
            call: Body | None = block["toolUse"]
            if type(call) is not dict or "type" in call or type(call.get("input")) is not dict:
                return UNCLEAR
            name, call_id = call.get("name"), call.get("toolUseId")
            if type(name) is not str or type(call_id) is not str or not call_id or not names[name]:
                return UNCLEAR
            seen = (CALLS, call_id) if seen is SAID else (*seen, call_id)
        elif not _is_signed(block):
            return UNCLEAR
    return seen


def _seen_by_user(blocks: list[Body], alone: bool) -> Seen:
    """Results, and words behind them where they may stand."""
    seen = WORDS
    has_words = False
    for block in blocks:
        if type(block) is not dict or len(block) != 1:
            return UNCLEAR
        if (words := block.get("text")) is not None:
            if type(words) is not str or not words or words.isspace():
                return UNCLEAR
            has_words = True
        else:
            result: Body | None = block.get("toolResult")
            if has_words or type(result) is not dict or "type" in result or not result.get("content"):
                return UNCLEAR
            call_id = result.get("toolUseId")
            if type(call_id) is not str or not call_id:
                return UNCLEAR
            seen = (RESULTS, call_id) if seen is WORDS else (*seen, call_id)
    return UNCLEAR if has_words and alone and seen is not WORDS else seen


def _held(block: Body, key: str) -> Body:
    held: object = block.get(key)
    return held if is_body(held) else {}


def _with_text_id(work: Work, index: int, block: Body) -> Body:
    key = "toolUse" if "toolUse" in block else "toolResult"
    held: object = block.get(key)
    if not is_body(held):
        return block
    told = work.with_text_id(held, "toolUseId", index)
    return block if told is held else {**block, key: told}


def _is_signed(block: Body) -> bool:
    reasoning = _held(block, "reasoningContent")
    return bool(reasoning.get("redactedContent")) or bool(_held(reasoning, "reasoningText").get("signature"))


def _is_light(blocks: list[Body]) -> bool:
    """Whether the results may share their message with all that stands beside them: Claude takes no documents there."""
    return not any(key in block for block in blocks for key in _ATTACHED)


def _clean_call(work: Work, index: int, block: Body) -> Body:
    call = _held(block, "toolUse")
    name, call_id = text_of(call.get("name")), text_of(call.get("toolUseId"))
    fitting = work.fit_name(name, work.profile.names)
    if fitting != name:
        work.report("B8", index, "renamed", f"now {fitting}", call_id=call_id, name=name)
        block = {**block, "toolUse": {**call, "name": fitting}}
    if not isinstance(call.get("input"), dict):
        value, raw = as_object(call.get("input"))
        block = {**block, "toolUse": {**call, "name": fitting, "input": value}}
        work.keep_raw(block, raw)
        work.report("B9", index, "edited", "its input was no JSON object", call_id=call_id, name=name)
    return block
