"""Anthropic's messages as turns: messages of one role in a row are one turn, and blocks keep their place."""

from __future__ import annotations

import msgspec

from heaveto.core.json_values import Body, objects, text
from heaveto.core.validate.violation import Violation


class Block(msgspec.Struct, frozen=True):
    """A block with where it stands: number of its message, index in it."""

    message: int
    index: int
    block: Body

    @property
    def kind(self) -> str:
        """The type of the block."""
        return text(self.block.get("type"))

    @property
    def where(self) -> str:
        """The block's path as errors name it."""
        return f"messages.{self.message}.content.{self.index}"

    def id_at(self, key: str) -> str:
        """The id of a call or a result."""
        return text(self.block.get(key))


class Turn(msgspec.Struct, frozen=True):
    """What one side says at once; `first` is the number of its first message."""

    role: str
    first: int
    blocks: list[Block]

    def of(self, kind: str) -> list[Block]:
        """The blocks of one kind."""
        return [block for block in self.blocks if block.kind == kind]

    @property
    def holds_results_only(self) -> bool:
        """Whether there is nothing but results of the client's tools."""
        return bool(self.blocks) and all(block.kind == "tool_result" for block in self.blocks)


def turns_of(messages: list[Body]) -> list[Turn]:
    """Return the turns that the messages make."""
    turns: list[Turn] = []
    for index, message in enumerate(messages):
        role = text(message.get("role"))
        if not turns or turns[-1].role != role:
            turns.append(Turn(role, index, []))
        turns[-1].blocks.extend(Block(index, place, block) for place, block in enumerate(blocks_of(message)))
    return turns


def blocks_of(message: Body) -> list[Body]:
    """Return the blocks of a message; a text is one."""
    content = message.get("content")
    return [{"type": "text", "text": content}] if isinstance(content, str) else objects(content)


def rejected(rule: str, message: str, *, sure: bool = True) -> Violation:
    """Return Anthropic's ``invalid_request_error``."""
    error = {"type": "invalid_request_error", "message": message}
    body = {"type": "error", "error": error, "request_id": "req_emulated"}
    return Violation(rule, 400, body, unconfirmed=not sure, headers={"request-id": "req_emulated"})
