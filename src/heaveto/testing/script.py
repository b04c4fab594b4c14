"""The vocabulary of scripted answers, shared by `ScriptedModel` and the emulators.

One step is one answer: a text, a piece, or a tuple or list of pieces; or a function of the request that returns one.

    ScriptedModel(call("refund", order=7), say("Done."))
    ScriptedModel((think("Hm."), say("Both:"), call("a", x=1), call("b", x=2)), cut())
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import msgspec

from heaveto.errors import ModelError
from heaveto.events.contents import Json, Part, Thought
from heaveto.events.records import Usage
from heaveto.models.base import CallChunk, Chunk, EndChunk, PartChunk, TextChunk, ThoughtChunk, UsageChunk


class Say(msgspec.Struct, frozen=True):
    """Text, streamed in fragments."""

    fragments: tuple[str, ...]


class Think(msgspec.Struct, frozen=True):
    """Reasoning, streamed in fragments; with a signature the whole of it follows as a part."""

    fragments: tuple[str, ...]
    signature: str | None = None


class Call(msgspec.Struct, frozen=True):
    """A tool call, its arguments streamed in fragments. Without an id it gets the script's next one."""

    name: str
    fragments: tuple[str, ...]
    provider_id: str | None = None


class Give(msgspec.Struct, frozen=True):
    """A complete part."""

    part: Part


class Spend(msgspec.Struct, frozen=True):
    """What the answer cost."""

    usage: Usage


class Finish(msgspec.Struct, frozen=True):
    """How the provider closes the answer, instead of a plain ``stop``."""

    reason: str
    cut: bool = False


class Delay(msgspec.Struct, frozen=True):
    """A wait, on the clock of the model that plays the script."""

    seconds: float


class Fault(msgspec.Struct, frozen=True):
    """An error at this point of the answer, or after so many chunks of it."""

    error: ModelError
    after_chunks: int | None = None


class Cut(msgspec.Struct, frozen=True):
    """The stream breaks off at this point, or after so many chunks: no end, no usage.

    The emulator breaks also after so many bytes of its answer's head (status line and headers) or body.
    """

    after_chunks: int | None = None
    after_bytes: int | None = None
    after_head_bytes: int | None = None

    @property
    def counts_bytes(self) -> bool:
        """Whether it is a matter of the wire, and no point of the script."""
        return self.after_bytes is not None or self.after_head_bytes is not None


class Hang(msgspec.Struct, frozen=True):
    """Nothing more comes, and the stream stays open."""


class Gate:
    """A named point of an answer where the stream waits until a test opens it.

    gate = Gate("mid-answer")
    model = ScriptedModel((say("Hel"), gate, say("lo")))
    ...
    await gate.reached()      # the model stands at the gate
    gate.open()
    """

    def __init__(self, name: str = "gate") -> None:
        self.name = name
        self._reached, self._opened = asyncio.Event(), asyncio.Event()

    async def reached(self) -> None:
        """Wait until a stream stands at the gate. Returns at once if one did before."""
        await self._reached.wait()

    def open(self) -> None:
        """Let this and every later stream pass."""
        self._opened.set()

    async def passed(self) -> None:
        """Stand at the gate until it is open. The player of the script calls this."""
        self._reached.set()
        await self._opened.wait()

    def __repr__(self) -> str:
        return f"Gate({self.name!r})"


Piece: TypeAlias = Say | Think | Call | Give | Spend | Finish | Delay | Fault | Cut | Hang | Gate | str
_PIECES = (Say, Think, Call, Give, Spend, Finish, Delay, Fault, Cut, Hang, Gate, str)
Answer: TypeAlias = Piece | Sequence[Piece]
Step: TypeAlias = "Answer | Callable[[Any], Answer]"
Action: TypeAlias = Chunk | Delay | Fault | Cut | Hang | Gate
"""What a player does one after another; a `Fault` or a `Cut` ends the stream."""


def say(text: str, *, chunks: int | Sequence[str] = 1) -> Say:
    """Say a text, in so many fragments or in these."""
    return Say(_fragments(text, chunks))


def think(text: str, *, signature: str | None = None, chunks: int | Sequence[str] = 1) -> Think:
    """Think aloud; with a signature as providers give it that want their thoughts back."""
    return Think(_fragments(text, chunks), signature)


def call(name: str, /, **args: Json) -> Call:
    """Call a tool with these arguments. Several calls in one step are parallel."""
    return Call(name, _fragments(msgspec.json.encode(args).decode(), 2))


def raw_call(name: str, args: str, *, provider_id: str | None = None, chunks: int | Sequence[str] = 1) -> Call:
    """Call a tool with this argument text, which need not be JSON, or under this provider id, which may repeat."""
    return Call(name, _fragments(args, chunks), provider_id)


def give(part: Part) -> Give:
    """Give a complete part: signed, opaque, or the provider's own call."""
    return Give(part)


def usage(input_tokens: int = 0, output_tokens: int = 0, **more: Any) -> Spend:
    """Report what the answer cost, just before its end. More fields as in `Usage`."""
    return Spend(Usage(input_tokens, output_tokens, **more))


def finish(reason: str, *, cut: bool = False) -> Finish:
    """Close the answer with the provider's own word; `cut` if it means that a limit cut it."""
    return Finish(reason, cut)


def delay(seconds: float) -> Delay:
    """Wait on the clock of the model, before what follows."""
    return Delay(seconds)


def gate(name: str = "gate") -> Gate:
    """Make a point to wait at; keep it to open it."""
    return Gate(name)


def fault(
    message: str = "scripted fault",
    *,
    status: int | None = None,
    retryable: bool | None = None,
    retry_after_seconds: float | None = None,
    after_chunks: int | None = None,
    body: Json = None,
) -> Fault:
    """Fail here, or after so many chunks. By default a status of 429 or 5xx, or none, is retryable.

    `body` is the whole error body that an emulator sends, instead of the one that fits the status.
    """
    if retryable is None:
        retryable = status is None or status == 429 or status >= 500
    error = ModelError(message, status=status, retryable=retryable, retry_after_seconds=retry_after_seconds, body=body)
    return Fault(error, after_chunks)


def cut(*, after_chunks: int | None = None, after_bytes: int | None = None, after_head_bytes: int | None = None) -> Cut:
    """Break the stream off here, or after so many chunks, without an end.

    For emulators also at any byte: of the answer's body, or of its head. An answer that is shorter has no end either.
    """
    return Cut(after_chunks, after_bytes, after_head_bytes)


def hang() -> Hang:
    """Send nothing more and keep the stream open, until it is closed from outside."""
    return Hang()


class Script:
    """The steps of a player, and how far it has come. Not safe over threads."""

    def __init__(self, steps: Sequence[Step], *, strict: bool = True) -> None:
        self._steps, self._strict = list(steps), strict
        self._played = self._calls = 0

    @property
    def left(self) -> list[Step]:
        """The steps that nobody asked for yet."""
        return self._steps[self._played :]

    @property
    def played(self) -> int:
        """How many answers were asked for."""
        return self._played

    def next_actions(self, request: Any, call_id: Callable[[int], str] = "call_{}".format) -> list[Action] | None:
        """Return what the next answer does. Beyond the end it is None, or the last step again if not strict.

        `call_id` makes the id of the n-th call that the script gives none.
        """
        if self._played < len(self._steps):
            step = self._steps[self._played]
        elif self._strict or not self._steps:
            return None
        else:
            step = self._steps[-1]
        self._played += 1
        return self._actions(_pieces(step, request), call_id)

    def _actions(self, pieces: Sequence[Piece], call_id: Callable[[int], str]) -> list[Action]:
        body: list[Action] = []
        tail: list[Action] = []
        end, calls = EndChunk(), 0
        for piece in pieces:
            match piece:
                case Spend(usage=spent):
                    tail = [UsageChunk(spent)]
                case Finish(reason=reason, cut=is_cut):
                    end = EndChunk(reason=reason, cut=is_cut)
                case Call():
                    body += self._call_chunks(piece, calls, call_id)
                    calls += 1
                case Delay() | Fault() | Cut() | Hang() | Gate():
                    body.append(piece)
                case str() | Say() | Think() | Give():
                    body += _chunks(piece)
        if calls and end.reason == "stop":
            end = EndChunk(reason="tool_calls")
        limits = [action for action in body if isinstance(action, Cut) and action.counts_bytes]
        return [*limits, *_with_breaks([action for action in [*body, *tail, end] if action not in limits])]

    def _call_chunks(self, piece: Call, index: int, call_id: Callable[[int], str]) -> list[Action]:
        self._calls += 1
        provider_id = call_id(self._calls) if piece.provider_id is None else piece.provider_id
        head = CallChunk(index, name=piece.name, provider_id=provider_id, args=piece.fragments[0])
        return [head, *(CallChunk(index, args=fragment) for fragment in piece.fragments[1:])]


def _pieces(step: Step, request: Any) -> Sequence[Piece]:
    if isinstance(step, _PIECES):
        return [step]
    if isinstance(step, Sequence):
        return step  # pyright: ignore[reportUnknownVariableType]  # a function that were a sequence too
    return _pieces(step(request), request)


def _chunks(piece: str | Say | Think | Give) -> list[Action]:
    match piece:
        case str():
            return [TextChunk(piece)]
        case Say(fragments=fragments):
            return [TextChunk(fragment) for fragment in fragments]
        case Think(fragments=fragments, signature=None):
            return [ThoughtChunk(fragment) for fragment in fragments]
        case Think(fragments=fragments, signature=signature):
            whole = Thought(text="".join(fragments), signature=signature, provider="scripted")
            return [*(ThoughtChunk(fragment) for fragment in fragments), PartChunk(whole)]
        case Give(part=part):
            return [PartChunk(part)]


def _with_breaks(actions: list[Action]) -> list[Action]:
    """Move each fault and cut that counts chunks to its place, and end the answer at the first one."""
    for action in actions:
        if isinstance(action, (Fault, Cut)) and action.after_chunks is not None:
            others = [other for other in actions if other is not action]
            place = _after(others, action.after_chunks)
            return _with_breaks([*others[:place], _here(action)])
        if isinstance(action, (Fault, Cut)):
            return actions[: actions.index(action) + 1]
    return actions


def _after(actions: list[Action], chunks: int) -> int:
    count = 0
    for place, action in enumerate(actions):
        if count == chunks:
            return place
        count += not isinstance(action, (Delay, Fault, Cut, Hang, Gate))
    return len(actions)


def _here(action: Fault | Cut) -> Fault | Cut:
    return Cut() if isinstance(action, Cut) else Fault(action.error)


def _fragments(text: str, chunks: int | Sequence[str]) -> tuple[str, ...]:
    if not isinstance(chunks, int):
        if "".join(chunks) != text:
            raise ValueError(f"the chunks {chunks!r} do not add up to {text!r}")
        return tuple(chunks)
    count = max(1, min(chunks, len(text)))
    edges = [len(text) * part // count for part in range(count + 1)]
    return tuple(text[start:stop] for start, stop in itertools.pairwise(edges))
