"""The projection: from the log to what one agent's model is told. Repair is inside and cannot be forgotten.

A `View` reads each record once. What it has told a model stays as it was told, byte for byte; only the frontier (what
came since that model's last message) is computed anew. So a request costs what is new (P9), and its prefix is stable.

`Message.seen` decides what a model knew: results and texts with a later seq were not in its request, and are told
behind its message, in the order of their arrival.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from heaveto.core import notes
from heaveto.core.findings import Findings
from heaveto.core.fold import calls_around, is_within
from heaveto.core.project.delivered import Cut, Deliveries, Spoken, counting, shortened
from heaveto.core.project.told import Call, Fact, Said, open_status, status_of
from heaveto.core.project.wire_parts import WireParts
from heaveto.core.request import Held, ModelProfile, Turn, Turns
from heaveto.events.contents import Blob, FileRef, FunctionCall, Part, Text, Thought, calls_of, text_of
from heaveto.events.records import (
    CallSettled,
    CallStarted,
    CallStatus,
    CancelRequested,
    Compacted,
    Message,
    Paused,
    Record,
    Rewound,
    RunEnded,
    RunStarted,
)

_UNFINISHED: frozenset[CallStatus] = frozenset({"failed", "cancelled", "unknown"})


class View:
    """The conversation as one agent, in one branch, tells it to one provider.

    It sees its branch, those above it, and those below it, but not the parallel ones beside it. Isolated branches
    (with ``@`` in the name: an agent that works as a tool) are seen from within only, and see nothing else.
    """

    __slots__ = ("_agent", "_branch", "_calls", "_cut", "_deliveries", "_done", "_findings", "_held", "_inner",
                 "_known", "_open_runs", "_parts", "_position", "_profile", "_start", "_summary_seq",
                 "_wire")  # fmt: skip

    def __init__(self, agent: str, branch: str, profile: ModelProfile, start: int = 0) -> None:
        """`start` is the index of the first record that can matter; the records before it are not looked at."""
        self._agent, self._branch, self._profile, self._start = agent, branch, profile, start
        self._position = start
        self._reset()

    def _reset(self) -> None:
        # Told for good, and then the frontier: the calls of the last model turn, and what a user turn will hold.
        self._done: list[Turn] = []
        self._calls: list[Call] = []
        self._parts: list[Said] = []
        # What the provider holds of it, and where the summary stands that it begins with.
        self._held = Held()
        self._summary_seq = 0
        # What later records may refer to.
        self._known: dict[str, Call] = {}
        # What agents that work for these calls have found, and the calls that they make, by the call around.
        self._findings: dict[str, Findings] = {}
        self._inner: dict[str, str] = {}
        self._wire = WireParts(self._profile)
        self._open_runs: set[str] = set()
        self._deliveries = Deliveries()
        self._cut: Cut | None = None

    def turns(self, records: Sequence[Record]) -> Turns:
        """Return the conversation after these records: all of the session's, seq 1 at index 0."""
        while self._position < len(records):
            record = records[self._position]
            self._position += 1
            if isinstance(record, (Compacted, Rewound)):
                self._rebuild(records[: self._position])
            else:
                self._take(record)
        if self._cut is not None:
            return Turns(self._done, len(self._done) - 1, (self._cut.turn, *self._tail()), self._held)
        return Turns(self._done, len(self._done), self._tail(), self._held)

    def _rebuild(self, records: Sequence[Record]) -> None:
        """Start again behind the newest summary that still counts, without what was rewound."""
        kept = counting(records[self._start :])
        summary = None
        if self._sees(""):
            summary = next((record for record in reversed(kept) if isinstance(record, Compacted)), None)
        covered = 0
        self._reset()
        if summary is not None:
            covered = sum(record.seq <= min(summary.upto, summary.seq) for record in kept)
            for record in kept[:covered]:
                self._take(record)
            self._summarise(summary)
        for record in kept[covered:]:
            self._take(record)

    def _summarise(self, summary: Compacted) -> None:
        """Put a summary in the place of all that was said. What is still open stays known: news of it will count."""
        for call in self._calls:
            self._fix(call, sys.maxsize)
        self._done, self._calls, self._cut = [], [], None
        self._deliveries.forget_turns()
        self._held, self._summary_seq = Held(), summary.seq
        self._parts = []
        self._say(0, summary.summary.parts)

    def _take(self, record: Record) -> None:
        match record:
            case Message():
                self._message(record)
            case CallStarted() | CallSettled():
                self._hear(record.call_id, record)
            case CancelRequested() if record.call_id:
                self._stop_asked(record.call_id, record.seq)
            case CancelRequested() if record.delivered is not None and self._sees(""):
                if record.run_id in self._open_runs:
                    self._deliveries.asked.setdefault(record.run_id, record.delivered)
                else:
                    self._deliver(record.run_id, record.seq, record.delivered)
            case RunStarted() if self._sees(""):
                self._open_runs.add(record.run_id)
                if record.attempt == 1:
                    self._say(record.seq, record.input.parts)
            case RunEnded() if record.run_id in self._open_runs:
                self._open_runs.discard(record.run_id)
                self._note(record.seq, notes.ended_note(record.outcome, record.cause, record.error))
                if (delivered := self._deliveries.asked.pop(record.run_id, None)) is not None:
                    self._deliver(record.run_id, record.seq, delivered)
            case Paused():
                for waiting in record.waiting:
                    self._hear(waiting.call_id, record)
            case _:
                pass

    def _sees(self, branch: str) -> bool:
        root, isolated, _ = self._branch.rpartition("@")
        if isolated and len(branch) <= len(root):
            return False
        if is_within(self._branch, branch):
            return True
        return is_within(branch, self._branch) and "@" not in branch[len(self._branch) :]

    def _message(self, record: Message) -> None:
        if not self._sees(record.branch):
            self._overhear(record)
        elif record.author == "user":
            self._say(record.seq, record.parts)
        elif record.interrupted == "guardrail":
            self._note(record.seq, notes.WITHHELD)  # what a guardrail blocked is never told again (F155)
        elif record.author == self._agent and is_within(self._branch, record.branch):
            self._own_message(record)
        else:
            self._foreign_message(record)

    def _own_message(self, record: Message) -> None:
        parts, calls = self._wire.of(record.parts)
        if all(isinstance(part, Thought) for part in parts):
            return  # a turn with nothing to send vanishes (F28)
        self._tell(record.seen or record.seq - 1)
        self._done.append(Turn("model", tuple(parts)))
        self._hold(record)
        self._calls = calls
        for call in calls:
            self._known[call.call_id] = call
        self._spoken(record, "", len(self._done) - 1)
        if record.interrupted is not None:
            self._note(record.seq, notes.cut_note(record.interrupted))

    def _spoken(self, record: Message, author: str, turn: int | None = None) -> None:
        text = text_of(record.parts)
        if text.strip():
            self._deliveries.spoken[record.run_id] = Spoken(author, text, turn)

    def _deliver(self, run_id: str, seq: int, delivered: int) -> None:
        """Show what was delivered of a run's last text, and say that it was no more (F62).

        Where the text is told for good, or the provider holds it, it stands as it is, and only the news are told.
        """
        undelivered = self._deliveries.undelivered(run_id, delivered)
        if undelivered is None:
            return
        spoken, prefix = undelivered
        last = len(self._done) - 1
        turn = shortened(self._done[last], prefix) if spoken.turn == last and self._held.turns <= last else None
        if turn is None:
            self._note(seq, notes.delivered_note(spoken.author, prefix))
            return
        self._parts.append(Said(seq, Text(text=notes.DELIVERED)))
        self._cut = Cut(seq, turn, self._parts[-1], prefix)

    def _hold(self, record: Message) -> None:
        """Note where the provider stands if it holds this answer, and with it all that was told before it.

        Not what another branch asked, which may have been told other things; nor what was asked before the summary,
        with all that the summary stands for.
        """
        match record.data:
            case {"id": str(response_id), "held": True}:
                own = record.provider == self._profile.name and record.branch == self._branch
                if own and record.interrupted is None and record.seen >= self._summary_seq:
                    self._held = Held(response_id, len(self._done))
            case _:
                pass

    def _tell(self, seen: int) -> None:
        """Fix the frontier as the request that saw `seen` had it; carry over what came later."""
        if self._cut is not None and self._cut.stands(seen):
            self._done = [*self._done[:-1], self._cut.turn]  # a new list: earlier requests share the old one
        self._cut = None
        self._done.extend(self._tail(seen))
        self._parts = [said for said in self._parts if said.seq > seen]
        for call in self._calls:
            self._fix(call, seen)
        self._parts.sort(key=lambda said: said.seq)
        self._calls = []

    def _fix(self, call: Call, seen: int) -> None:
        """What a request that saw `seen` said of a call stands; what was heard since is news."""
        call.told = call.status(seen)
        for fact in call.facts:
            if fact.seq > seen:
                self._tell_news(call, fact)
        self._forget_if_final(call)

    def _tail(self, seen: int = sys.maxsize) -> tuple[Turn, ...]:
        tail: list[Turn] = []
        if self._calls:
            tail.append(Turn("tool", tuple(call.response(seen) for call in self._calls)))
        said = tuple(said.part for said in self._parts if said.seq <= seen < said.until)
        if said:
            tail.append(Turn("user", said))
        elif not self._calls:
            tail.append(Turn("user", (Text(text=notes.CONTINUE),)))
        return tuple(tail)

    def _foreign_message(self, record: Message) -> None:
        """Another agent's words and calls are told as quotations: a pair is always converted together (F05)."""
        self._spoken(record, record.author)
        for part in record.parts:
            if isinstance(part, Text) and part.text.strip():
                self._note(record.seq, notes.foreign_text(record.author, part.text))
            elif isinstance(part, FunctionCall):
                self._note(record.seq, notes.foreign_call(record.author, part))
                self._known[part.call_id] = Call(part.call_id, "", part.name, record.author, told="quoted")
            elif isinstance(part, (Blob, FileRef)):
                self._parts.append(Said(record.seq, part))
        if record.interrupted is not None:
            self._note(record.seq, notes.foreign_cut(record.author))

    def _overhear(self, record: Message) -> None:
        """Note what an agent finds that works for a call of this view, be it through other calls: it may not finish."""
        around = next((call_id for call_id in calls_around(record.branch) if call_id in self._known), None)
        if around is not None:
            self._findings.setdefault(around, Findings()).take(record)
            self._inner.update((call.call_id, around) for call in calls_of(record.parts))  # whose results it will get

    def _hear(self, call_id: str, fact: Fact) -> None:
        if (found := self._findings.get(self._inner.get(call_id, ""))) is not None:
            found.take(fact)
        call = self._known.get(call_id)
        if call is not None and call.hear(fact):
            if isinstance(fact, CallSettled) and call_id in self._findings and fact.status in _UNFINISHED:
                call.partial[fact.seq] = self._findings[call_id].lines
            self._tell_news(call, fact)
            self._forget_if_final(call)

    def _stop_asked(self, call_id: str, seq: int) -> None:
        call = self._known.get(call_id)
        if call is not None and not call.stop_seq:
            call.stop_seq = seq

    def _tell_news(self, call: Call, fact: Fact) -> None:
        """Say what became of a call of which something else was said before."""
        status = status_of(fact)
        if call.told is None or (call.told == status and call.news is None):
            return
        if call.news is not None:
            call.news.until = fact.seq
        if not isinstance(fact, CallSettled):
            if not call.author:
                call.news = Said(fact.seq, Text(text=notes.open_note(call.wire_id, call.name, open_status(fact))))
                self._parts.append(call.news)
            return
        call.told, call.news = fact.status, None
        alone, partial = call.stopped_alone(fact), call.partial.get(fact.seq, ())
        if call.author:
            self._note(fact.seq, notes.foreign_result(call.author, call.name, fact, alone=alone, partial=partial))
        else:
            self._note(fact.seq, notes.late_note(call.wire_id, call.name, fact, alone=alone, partial=partial))

    def _forget_if_final(self, call: Call) -> None:
        if call.is_final and self._known.get(call.call_id) is call:
            del self._known[call.call_id]
            found = self._findings.pop(call.call_id, None)
            for inner in found.calls if found is not None else ():
                self._inner.pop(inner, None)

    def _note(self, seq: int, text: str | None) -> None:
        if text is not None:
            self._parts.append(Said(seq, Text(text=text)))

    def _say(self, seq: int, parts: Sequence[Part]) -> None:
        self._parts.extend(Said(seq, part) for part in _said(parts))


def _said(parts: Sequence[Part]) -> list[Part]:
    """What counts as said by a user: never calls or results, and no blank text."""
    return [
        part for part in parts if (isinstance(part, Text) and part.text.strip()) or isinstance(part, (Blob, FileRef))
    ]


def project(records: Sequence[Record], agent: str, profile: ModelProfile, *, branch: str = "") -> Turns:
    """Return what a model is told after these records: pure, total, the same each time.

    Args:
        records: all records of the session up to some seq, seq 1 at index 0.
        agent: the agent whose model is asked; its own messages are model turns, others' are quoted.
        profile: what the provider's requests may carry.
        branch: the agent's branch.
    """
    return View(agent, branch, profile).turns(records)
