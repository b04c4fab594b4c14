"""What a model is asked: turns that every provider's pairing rules accept.

Grammar, held by construction in `project`: the first turn is the user's; turns of one role never follow each other;
a model turn with calls is followed at once by one tool turn with exactly one result for each of its calls, in call
order; the last turn is the user's or a tool's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias, cast, overload

import msgspec

from heaveto.events.contents import FunctionResponse, Json, Part

Role: TypeAlias = Literal["user", "model", "tool"]


class Turn(msgspec.Struct, frozen=True, gc=False):
    """One turn of the conversation. A tool turn holds only `FunctionResponse` parts, a user turn none of them."""

    role: Role
    parts: tuple[Part, ...]

    @property
    def responses(self) -> tuple[FunctionResponse, ...]:
        return tuple(part for part in self.parts if isinstance(part, FunctionResponse))


class Held(msgspec.Struct, frozen=True, gc=False):
    """What the provider itself holds of a conversation: its first `turns` turns, the last of them a model's answer.

    `response_id` is the provider's id of that answer; empty with 0 turns, where it holds none of them.
    """

    response_id: str = ""
    turns: int = 0


class Turns(Sequence[Turn]):
    """An immutable view: the first `length` turns of a list that only grows, then a short tail.

    Making one costs the tail, not the session (P9). `held` tells what of it the provider has.
    """

    __slots__ = ("_base", "_length", "_tail", "held")

    def __init__(self, base: list[Turn], length: int, tail: tuple[Turn, ...], held: Held | None = None) -> None:
        self._base, self._length, self._tail = base, length, tail
        self.held = held or Held()

    def __len__(self) -> int:
        return self._length + len(self._tail)

    @overload
    def __getitem__(self, index: int) -> Turn: ...
    @overload
    def __getitem__(self, index: slice) -> list[Turn]: ...
    def __getitem__(self, index: int | slice) -> Turn | list[Turn]:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        position = index + len(self) if index < 0 else index
        if not 0 <= position < len(self):
            raise IndexError(index)
        return self._base[position] if position < self._length else self._tail[position - self._length]

    def __iter__(self) -> Iterator[Turn]:
        for position in range(self._length):
            yield self._base[position]
        yield from self._tail

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(cast("Sequence[object]", other))

    __hash__ = None  # type: ignore[assignment]  # turns hold dicts

    def __repr__(self) -> str:
        return f"Turns({list(self)!r})"


class ModelProfile(msgspec.Struct, frozen=True):
    """What a model can be told of a conversation; part of the projection's key.

    `name` is the provider family: parts and data of other families are left out of its requests. `thoughts` tells
    whether signed thoughts of the same family are sent back.
    """

    name: str
    thoughts: bool = True


class ToolDeclaration(msgspec.Struct, frozen=True):
    """A tool as a model sees it. `parameters` is a JSON schema of type object."""

    name: str
    description: str
    parameters: dict[str, Json]


class Generation(msgspec.Struct, frozen=True, omit_defaults=True):
    """Generation settings; None leaves the provider's default.

    `output_schema` is the JSON schema, of type object, of the text that the model is to answer with; every connector
    asks for it in its provider's own way. `extra` is passed to the connector as it is, and wins.
    """

    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    tool_choice: Literal["auto", "none", "required"] | None = None
    extra: dict[str, Json] = {}
    output_schema: dict[str, Json] | None = None


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request to a model, neutral. `seen` is the last seq of the log that it was computed from."""

    turns: Sequence[Turn]
    instruction: str = ""
    tools: tuple[ToolDeclaration, ...] = ()
    generation: Generation = Generation()
    agent: str = ""
    run_id: str = ""
    seen: int = 0

    @property
    def held(self) -> Held | None:
        """What the provider holds of these turns, as the session's log tells it.

        None for turns that are not a session's own, such as those that a callback put there: a provider must not go
        on from an answer to something else than the log will say.
        """
        return self.turns.held if isinstance(self.turns, Turns) else None
