"""From a stream of chunks to the parts of a message. Pure and synchronous.

One `Assembler` belongs to one attempt of one request, so fragments of two attempts or two runs never meet (F65, F80).
"""

from __future__ import annotations

from typing import Any, TypeAlias, assert_never

import msgspec

from heaveto.core.request import ModelRequest
from heaveto.events.contents import Blob, FileRef, FunctionCall, FunctionResponse, Json, Part, Text, Thought
from heaveto.events.records import Usage
from heaveto.ids import IdSource
from heaveto.models.base import CallChunk, Chunk, EndChunk, PartChunk, PauseChunk, TextChunk, ThoughtChunk, UsageChunk
from heaveto.models.storable import storable, storable_part, well_formed

_ARGUMENTS = msgspec.json.Decoder(dict[str, Any])
_CHARACTERS_PER_TOKEN = 4
_TOKENS_PER_ATTACHMENT = 800


class Assembled(msgspec.Struct, frozen=True):
    """What a stream came to. `end` and `usage` are None where the provider never sent them."""

    parts: tuple[Part, ...]
    end: EndChunk | None
    usage: Usage | None

    @property
    def is_cut(self) -> bool:
        """Whether the answer is incomplete: the stream broke, or a limit cut it (F30)."""
        return self.end is None or self.end.cut


class _Streamed:
    """Text or thought that is still growing."""

    __slots__ = ("fragments", "is_thought")

    def __init__(self, is_thought: bool) -> None:
        self.is_thought = is_thought
        self.fragments: list[str] = []

    @property
    def text(self) -> str:
        self.fragments = ["".join(self.fragments)]
        return well_formed(self.fragments[0])

    def give_way(self, part: Part) -> bool:
        """Make room for a part that was streamed as this before it came whole; return whether anything is left."""
        match part:
            case Thought() if self.is_thought:
                is_end = bool(part.text) and self.text.endswith(part.text)
                left = self.text.removesuffix(part.text) if is_end else ""
            case Text(data=dict()) if not self.is_thought:
                left = self.text.removesuffix(part.text)
            case _:
                return True
        self.fragments = [left]
        return bool(left)


class _Call:
    """A call whose arguments are still growing."""

    __slots__ = ("args", "call_id", "data", "name", "provider_id", "repeats")

    def __init__(self, call_id: str, *, repeats: bool = False) -> None:
        self.call_id, self.repeats = call_id, repeats
        self.name = self.provider_id = ""
        self.args: list[str] = []
        self.data: dict[str, Json] | None = None

    @property
    def raw(self) -> str:
        self.args = ["".join(self.args)]
        return self.args[0]

    def add(self, chunk: CallChunk) -> None:
        self.name = self.name or chunk.name
        self.provider_id = self.provider_id or chunk.provider_id
        self.data = storable(chunk.data) if chunk.data is not None else self.data
        if chunk.args:
            self.args.append(chunk.args)


_Slot: TypeAlias = "_Streamed | _Call | Part"


class Assembler:
    """Collects the chunks of one answer.

    Calls get our ids at first sight, from `ids`; the provider's own id is kept beside, because it may repeat (F20).
    `provider` is noted on thoughts and calls.
    """

    def __init__(self, ids: IdSource, *, provider: str = "") -> None:
        self._ids, self._provider = ids, provider
        self._slots: list[_Slot] = []
        self._calls: dict[int, _Call] = {}
        self._open: _Call | None = None
        self._end: EndChunk | None = None
        self._usage: Usage | None = None

    @property
    def end(self) -> EndChunk | None:
        return self._end

    @property
    def usage(self) -> Usage | None:
        return self._usage

    def feed(self, chunk: Chunk) -> None:
        """Take the next chunk."""
        match chunk:
            case TextChunk(text=text):
                self._feed_streamed(text, is_thought=False)
            case ThoughtChunk(text=text):
                self._feed_streamed(text, is_thought=True)
            case CallChunk():
                self._feed_call(chunk)
            case PartChunk(part=part):
                self._feed_part(part)
            case UsageChunk(usage=usage):
                self._usage = usage
            case EndChunk(reason=reason, model=model, data=data):
                self._end = EndChunk(well_formed(reason), chunk.cut, well_formed(model), storable(data))
            case PauseChunk():
                self._pause()
            case _:
                assert_never(chunk)

    def partial(self) -> tuple[Part, ...]:
        """Return the message as it stands, as if the stream broke now.

        A call that something else followed, and whose arguments are a whole JSON object, is kept as it is. Any other
        is kept with ``defect="truncated"`` and must not be executed (F30).
        """
        return self._parts(cut=True)

    def finish(self) -> Assembled:
        """Return the whole message; call it when the stream has ended.

        Arguments that are not a JSON object make a call ``invalid``; no arguments at all are ``{}`` (F31). Without an
        `EndChunk`, or with one that says `cut`, the calls are judged as by `partial`. A call that the provider sent
        twice in this answer, with the same id, name and arguments, is one call (F19).
        """
        return Assembled(self._parts(cut=self._end is None or self._end.cut), self._end, self._usage)

    def _pause(self) -> None:
        """A further request follows: nothing goes on in it, and nobody has counted it yet."""
        self._open = None
        if self._usage is not None:
            self._usage = msgspec.structs.replace(self._usage, estimated=True)

    def _feed_streamed(self, text: str, *, is_thought: bool) -> None:
        if not text:
            return
        self._open = None
        last = self._slots[-1] if self._slots else None
        if not (isinstance(last, _Streamed) and last.is_thought == is_thought):
            last = _Streamed(is_thought)
            self._slots.append(last)
        last.fragments.append(text)

    def _feed_part(self, part: Part) -> None:
        self._open = None
        part = storable_part(part)
        last = self._slots[-1] if self._slots else None
        if isinstance(last, _Streamed) and not last.give_way(part):
            self._slots.pop()
        if isinstance(part, FunctionCall):
            part = msgspec.structs.replace(part, call_id=self._ids.call_id())
        self._slots.append(part)

    def _feed_call(self, chunk: CallChunk) -> None:
        call = self._calls.get(chunk.index)
        if call is None or _starts_another(call, chunk):
            repeats = call is not None and call.provider_id == chunk.provider_id
            call = _Call(self._ids.call_id(), repeats=repeats)
            self._calls[chunk.index] = call
            self._slots.append(call)
        call.add(chunk)
        self._open = call

    def _parts(self, *, cut: bool) -> tuple[Part, ...]:
        parts: list[Part] = []
        seen: set[tuple[str, str, bytes]] = set()
        for slot in self._slots:
            part = self._part(slot, cut=cut)
            if part is None or (isinstance(part, FunctionCall) and _is_repeated(part, seen)):
                continue
            parts.append(part)
        return tuple(parts)

    def _part(self, slot: _Slot, *, cut: bool) -> Part | None:
        match slot:
            case _Streamed(is_thought=True):
                return Thought(text=slot.text, provider=self._provider)
            case _Streamed():
                return Text(text=slot.text)
            case _Call():
                if slot.repeats and not slot.raw:
                    return None  # only the head of a call was sent again
                return self._call(slot, cut=cut)
            case _:
                return slot

    def _call(self, call: _Call, *, cut: bool) -> FunctionCall:
        raw = call.raw
        args = parse_arguments(raw)
        truncated = cut and (call is self._open or not raw.strip() or args is None)
        invalid = truncated or args is None
        return FunctionCall(
            call_id=call.call_id,
            name=well_formed(call.name),
            args={} if invalid or args is None else args,
            provider_id=well_formed(call.provider_id) or None,
            raw_args=well_formed(raw) if invalid else None,
            defect="truncated" if truncated else "invalid" if invalid else "",
            provider=self._provider,
            data=call.data,
        )


def parse_arguments(raw: str) -> dict[str, Json] | None:
    """Return the arguments that `raw` is the JSON text of, or None if it is not a JSON object. Blank text is ``{}``.

    Numbers that no log can hold, integers of more than 64 bits, make it none as well.
    """
    if not raw.strip():
        return {}
    try:
        arguments = _ARGUMENTS.decode(raw)
        msgspec.msgpack.encode(arguments)
    except (msgspec.DecodeError, ValueError, OverflowError, RecursionError):
        return None
    return arguments


def estimate_usage(request: ModelRequest, parts: tuple[Part, ...], known: Usage | None = None) -> Usage:
    """Estimate what a request cost whose provider never said all of it, because its stream was cut (F126).

    About four characters are one token. Where the provider said what the input came to, `known`, only the output is
    estimated; otherwise the whole request is read, so it is for cut answers only.
    """
    if known is not None:
        received = _tokens(sum(_size(part) for part in parts))
        return msgspec.structs.replace(known, output_tokens=max(known.output_tokens, received), estimated=True)
    sent = len(request.instruction) + sum(_size(part) for turn in request.turns for part in turn.parts)
    sent += sum(len(tool.description) + len(msgspec.json.encode(tool.parameters)) for tool in request.tools)
    received = sum(_size(part) for part in parts)
    return Usage(input_tokens=_tokens(sent), output_tokens=_tokens(received), estimated=True)


def _starts_another(call: _Call, chunk: CallChunk) -> bool:
    """Whether a fragment at a known index is another call: some hosts give all calls one index, some send one twice."""
    if not chunk.provider_id or not call.provider_id:
        return False
    if chunk.provider_id != call.provider_id:
        return True
    return bool(chunk.name) and call.raw.rstrip().endswith("}") and parse_arguments(call.raw) is not None


def _is_repeated(call: FunctionCall, seen: set[tuple[str, str, bytes]]) -> bool:
    if call.provider_id is None or call.defect:
        return False
    key = (call.provider_id, call.name, msgspec.json.encode(call.args, order="deterministic"))
    repeated = key in seen
    seen.add(key)
    return repeated


def _tokens(characters: int) -> int:
    return -(-characters // _CHARACTERS_PER_TOKEN)


def _size(part: Part) -> int:
    match part:
        case Text(text=text) | Thought(text=text):
            return len(text)
        case FunctionCall():
            return len(part.name) + len(part.raw_args or "") + len(msgspec.json.encode(part.args))
        case FunctionResponse():
            return len(msgspec.json.encode(part.response))
        case Blob() | FileRef():
            return _TOKENS_PER_ATTACHMENT * _CHARACTERS_PER_TOKEN
        case _:
            return len(msgspec.json.encode(part.data)) if part.data else 0
