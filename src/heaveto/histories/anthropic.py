"""Anthropic Messages."""

from __future__ import annotations

from typing import cast

from heaveto.core import notes
from heaveto.core.repair import Call, Made, Result
from heaveto.core.repair.steps import Place
from heaveto.core.wire_kinds import THINKING
from heaveto.histories.blocks import BlockFormat, set_apart, settle_ends
from heaveto.histories.server_tools import drop_unpaired, is_own
from heaveto.histories.work import Body, Work, as_object, json_words, objects_at, text_of, texts_of, words_of


class AnthropicFormat(BlockFormat):
    """Messages of blocks; messages of one role in a row are one turn (A23)."""

    def clean(self, work: Work) -> None:
        """Empty things, unsigned thinking, names, inputs, the provider's own calls (A7 to A11, A16 to A18)."""
        own_tools = False
        for index, message in enumerate(work.messages):
            assert message is not None
            content = message.get("content")
            if isinstance(content, str):
                if not content.strip():
                    work.messages[index] = None
                    work.report("A9", index, "dropped", "it had no content")
                continue
            blocks = objects_at(content, index, "content")
            is_model = message.get("role") == "assistant"
            if blocks and all(_is_fine(work, block, is_model) for block in blocks):
                continue
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
                case "tool_result" if block.get("is_error") is True:
                    clean = _clean_error(work, index, block, images)
                case "thinking" if not block.get("signature"):
                    clean = None
                    work.report("A16", index, "dropped", "thinking without a signature")
                case "redacted_thinking" if not block.get("data"):
                    clean = None
                    work.report("A16", index, "dropped", "redacted thinking without data")
                case _:
                    pass
            changed = changed or clean is not block
            if clean is not None:
                kept.append(clean)
        if changed and all(self.is_thinking(block) for block in kept):
            return []  # thinking does not stand alone: it goes with what it led to
        return [*kept, *images] if changed else blocks

    def settle(self, work: Work) -> None:
        """Results alone where that is wanted, and both ends (A12, A24)."""
        if work.profile.results_alone:
            set_apart(work, self, _is_result, "A3")
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


def _is_result(block: Body) -> bool:
    return block.get("type") == "tool_result"


def _is_fine(work: Work, block: Body, is_model: bool) -> bool:
    """Whether there is certainly nothing to see to: the usual case, and the fast one."""
    kind = block.get("type")
    if kind == "text":
        words = block.get("text")
        return type(words) is str and words != "" and not words.isspace()
    if kind == "tool_use":
        name = block.get("name")
        return is_model and type(block.get("input")) is dict and type(name) is str and work.names.get(name) == name
    return kind == "tool_result" and not block.get("is_error")


def _clean_call(work: Work, index: int, block: Body) -> Body:
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
