"""The projection: from the log to what one agent's model is told. Repair is inside and cannot be forgotten.

A `View` reads each record once. What it has told a model stays as it was told, byte for byte; only the frontier (what
came since that model's last message) is computed anew. So a request costs what is new (P9), and its prefix is stable.

`Message.seen` decides what a model knew: results and texts with a later seq were not in its request, and are told
behind its message, in the order of their arrival.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from heaveto.core import notes
from heaveto.core.fold import effective
from heaveto.core.request import Profile, Turn, Turns
from heaveto.events.contents import (
    Blob,
    FileRef,
    FunctionCall,
    FunctionResponse,
    Opaque,
    Part,
    ProviderCall,
    ProviderResult,
    Text,
    Thought,
)
from heaveto.events.records import (
    CallSettled,
    CallStarted,
    Compacted,
    Message,
    Paused,
    Record,
    Rewound,
    RunEnded,
    RunStarted,
)


@dataclass(slots=True)
class _Call:
    """A call that this view has seen and whose outcome may still change."""

    call_id: str
    wire_id: str
    name: str
    author: str
    own: bool
    started: bool = False
    waiting: bool = False
    told: bool = False
    """A model message has followed: whatever was told then stands, news go into a later turn."""
    settled: CallSettled | None = None

    def response(self, seen: int) -> FunctionResponse:
        if self.settled is not None and self.settled.seq <= seen:
            return notes.settled_response(self.wire_id, self.name, self.settled)
        return notes.open_response(self.wire_id, self.name, started=self.started, waiting=self.waiting)


class View:
    """The conversation as one agent, in one branch, tells it to one provider.

    Isolated branches (with ``@`` in the name: an agent that works as a tool) see themselves only.
    """

    __slots__ = ("_agent", "_branch", "_calls", "_done", "_frontier", "_known", "_open_runs", "_parts", "_position",
                 "_profile", "_start", "_used_ids")  # fmt: skip

    def __init__(self, agent: str, branch: str, profile: Profile, start: int = 0) -> None:
        """`start` is the index of the first record that can matter; the records before it are not looked at."""
        self._agent, self._branch, self._profile, self._start = agent, branch, profile, start
        self._position = start
        self._reset()

    def _reset(self) -> None:
        self._done: list[Turn] = []
        self._calls: list[_Call] = []
        self._parts: list[tuple[int, Part]] = []
        self._known: dict[str, _Call] = {}
        self._used_ids: set[str] = set()
        self._open_runs: set[str] = set()

    def turns(self, records: Sequence[Record]) -> Turns:
        """Return the conversation after these records: all of the session's, seq 1 at index 0."""
        while self._position < len(records):
            record = records[self._position]
            self._position += 1
            if isinstance(record, (Compacted, Rewound)):
                self._rebuild(records[: self._position])
            else:
                self._take(record)
        return Turns(self._done, len(self._done), self._tail())

    def _rebuild(self, records: Sequence[Record]) -> None:
        """Start again behind the newest summary that still counts, without what was rewound."""
        kept = effective(records[self._start :])
        summary = next((record for record in reversed(kept) if isinstance(record, Compacted)), None)
        self._reset()
        if summary is not None:
            self._parts.extend((summary.seq, part) for part in _said(summary.summary.parts))
            kept = [record for record in kept if record.seq > summary.upto]
        for record in kept:
            self._take(record)

    def _take(self, record: Record) -> None:
        match record:
            case Message():
                self._message(record)
            case CallStarted() if record.call_id in self._known:
                self._known[record.call_id].started = True
            case CallSettled() if record.call_id in self._known:
                self._settled(self._known[record.call_id], record)
            case RunStarted() if self._sees(""):
                self._open_runs.add(record.run_id)
                if record.attempt == 1:
                    self._parts.extend((record.seq, part) for part in _said(record.input.parts))
            case RunEnded() if record.run_id in self._open_runs:
                self._open_runs.discard(record.run_id)
                self._note(record.seq, notes.ended_note(record.outcome, record.cause, record.error))
            case Paused():
                for waiting in record.waiting:
                    if waiting.call_id in self._known:
                        self._known[waiting.call_id].waiting = True
            case _:
                pass

    def _sees(self, branch: str) -> bool:
        root, isolated, _ = self._branch.rpartition("@")
        if isolated and len(branch) <= len(root):
            return False
        return not branch or branch == self._branch or self._branch.startswith((branch + ".", branch + "@"))

    def _message(self, record: Message) -> None:
        if not self._sees(record.branch):
            return
        if record.author == "user":
            self._parts.extend((record.seq, part) for part in _said(record.parts))
        elif record.author == self._agent:
            self._own_message(record)
        else:
            self._foreign_message(record)

    def _own_message(self, record: Message) -> None:
        parts, calls = self._sendable(record)
        if not any(not isinstance(part, Thought) for part in parts):
            return
        self._tell(record.seen or record.seq - 1)
        self._done.append(Turn("model", tuple(parts)))
        self._calls = calls
        for call in calls:
            self._known[call.call_id] = call
        if record.interrupted is not None:
            self._note(record.seq, notes.cut_note(record.interrupted))

    def _tell(self, seen: int) -> None:
        """Fix the frontier as the request that saw `seen` had it; carry over what came later."""
        carried = [(seq, part) for seq, part in self._parts if seq > seen]
        self._parts = [(seq, part) for seq, part in self._parts if seq <= seen]
        self._done.extend(self._tail(seen))
        self._parts = carried
        for call in self._calls:
            call.told = True
            if call.settled is not None and call.settled.seq > seen:
                self._note(call.settled.seq, notes.late_note(call.wire_id, call.name, call.settled))
            self._forget_if_final(call)
        self._parts.sort(key=lambda entry: entry[0])
        self._calls = []

    def _tail(self, seen: int = sys.maxsize) -> tuple[Turn, ...]:
        tail: list[Turn] = []
        if self._calls:
            tail.append(Turn("tool", tuple(call.response(seen) for call in self._calls)))
        if self._parts:
            tail.append(Turn("user", tuple(part for _, part in self._parts)))
        elif not self._calls:
            tail.append(Turn("user", (Text(text=notes.CONTINUE),)))
        return tuple(tail)

    def _foreign_message(self, record: Message) -> None:
        """Another agent's words and calls are told as quotations: a pair is always converted together (F05)."""
        for part in record.parts:
            if isinstance(part, Text) and part.text.strip():
                self._note(record.seq, notes.foreign_text(record.author, part.text))
            elif isinstance(part, FunctionCall):
                self._note(record.seq, notes.foreign_call(record.author, part))
                self._known[part.call_id] = _Call(part.call_id, "", part.name, record.author, own=False)
            elif isinstance(part, (Blob, FileRef)):
                self._parts.append((record.seq, part))
        if record.interrupted is not None:
            self._note(record.seq, f"[{record.author} was cut off there.]")

    def _settled(self, call: _Call, record: CallSettled) -> None:
        if call.settled is not None and not (record.late and call.settled.status == "unknown"):
            return  # the first settlement wins (F17)
        was_known = call.settled
        call.settled = record
        if not call.own:
            self._note(record.seq, notes.foreign_result(call.author, call.name, record))
        elif call.told and not (record.status == "unknown" and was_known is None and call.started):
            self._note(record.seq, notes.late_note(call.wire_id, call.name, record))
        if call.told or not call.own:
            self._forget_if_final(call)

    def _forget_if_final(self, call: _Call) -> None:
        if call.settled is not None and call.settled.status != "unknown":
            self._known.pop(call.call_id, None)

    def _note(self, seq: int, text: str | None) -> None:
        if text is not None:
            self._parts.append((seq, Text(text=text)))

    def _sendable(self, record: Message) -> tuple[list[Part], list[_Call]]:
        """Return the message's parts as this provider may get them, and its calls."""
        parts: list[Part] = []
        calls: list[_Call] = []
        answered = {part.id for part in record.parts if isinstance(part, ProviderResult)}
        ours: set[str] = set()
        for part in record.parts:
            if isinstance(part, FunctionCall):
                if part.call_id not in ours:
                    ours.add(part.call_id)
                    call = _Call(part.call_id, self._wire_id(part), part.name, self._agent, own=True)
                    calls.append(call)
                    parts.append(self._wire_call(part, call.wire_id))
            elif self._may_send(part, answered):
                parts.append(self._neutral(part))
        return parts, calls

    def _wire_id(self, part: FunctionCall) -> str:
        """The provider's own id for a call it made, as long as that is unique; else ours (F20)."""
        wanted = part.provider_id if part.provider_id and part.provider == self._profile.name else part.call_id
        wire_id, count = wanted, 1
        while wire_id in self._used_ids:
            count += 1
            wire_id = f"{part.call_id}_{count}" if count > 2 else part.call_id
        self._used_ids.add(wire_id)
        return wire_id

    def _wire_call(self, part: FunctionCall, wire_id: str) -> FunctionCall:
        args = {} if part.defect else part.args
        own = part.provider == self._profile.name
        return FunctionCall(
            call_id=wire_id, name=part.name, args=args, provider=part.provider if own else "",
            data=part.data if own else None,
        )  # fmt: skip

    def _may_send(self, part: Part, answered: set[str]) -> bool:
        match part:
            case Text():
                return bool(part.text.strip())
            case Thought():
                return bool(part.signature and self._profile.thoughts and part.provider == self._profile.name)
            case FunctionResponse() | FunctionCall():
                return False
            case ProviderCall():
                return part.provider == self._profile.name and part.id in answered
            case ProviderResult() | Opaque():
                return part.provider == self._profile.name
            case Blob() | FileRef():
                return True

    def _neutral(self, part: Part) -> Part:
        if part.provider == self._profile.name or (not part.provider and part.data is None):
            return part
        return replace(part, provider="", data=None)


def _said(parts: Sequence[Part]) -> list[Part]:
    """What counts as said by a user: never calls or results, and no blank text."""
    return [
        part for part in parts if (isinstance(part, Text) and part.text.strip()) or isinstance(part, (Blob, FileRef))
    ]


def project(records: Sequence[Record], agent: str, profile: Profile, *, branch: str = "") -> Turns:
    """Return what a model is told after these records: pure, total, the same each time.

    Args:
        records: all records of the session up to some seq, seq 1 at index 0.
        agent: the agent whose model is asked; its own messages are model turns, others' are quoted.
        profile: what the provider's requests may carry.
        branch: the agent's branch.
    """
    return View(agent, branch, profile).turns(records)
