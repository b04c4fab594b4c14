"""How much of an answer reached the user: what a view shows of it, and says of it (F62)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from heaveto.core import notes
from heaveto.core.fold import effective
from heaveto.core.project.told import Said
from heaveto.core.request import Turn
from heaveto.events.contents import Text, Thought
from heaveto.events.records import CancelRequested, Record, RunStarted


@dataclass(slots=True)
class Spoken:
    """The last text of a run: who said it, if not the view's own agent, and in which turn, if in one of its own."""

    author: str
    text: str
    turn: int | None = None


@dataclass(slots=True)
class Cut:
    """The last turn as requests show it that know how much of it was delivered, and what they say of it."""

    seq: int
    turn: Turn
    said: Said
    prefix: str

    def stands(self, seen: int) -> bool:
        """Whether a request that has seen `seen` had it so; if not, it had the whole, and hears the news later."""
        if self.seq <= seen:
            return True
        self.said.part = Text(text=notes.delivered_note("", self.prefix))
        return False


@dataclass(slots=True)
class Deliveries:
    """What is known of it, by run.

    Attributes:
        spoken: the last text of each run.
        asked: how much was delivered, of runs that have not ended.
    """

    spoken: dict[str, Spoken] = field(default_factory=dict[str, Spoken])
    asked: dict[str, int] = field(default_factory=dict[str, int])

    def forget_turns(self) -> None:
        """The turns are gone: a summary stands for them."""
        for spoken in self.spoken.values():
            spoken.turn = None

    def undelivered(self, run_id: str, delivered: int) -> tuple[Spoken, str] | None:
        """Return a run's last text and what of it was delivered; None if that is all of it. Once for each run."""
        spoken = self.spoken.pop(run_id, None)
        return None if spoken is None or delivered >= len(spoken.text) else (spoken, spoken.text[:delivered])


def counting(records: Sequence[Record]) -> list[Record]:
    """Return the records that count, and what was delivered of answers among them, also where that was taken back.

    It comes behind the run's ending, where sessions are taken back to; the user has heard no more for that.
    """
    kept = effective(records)
    seqs = {record.seq for record in kept}
    runs = {record.run_id for record in kept if isinstance(record, RunStarted)}
    return [record for record in records if record.seq in seqs or (_is_mark(record) and record.run_id in runs)]


def _is_mark(record: Record) -> bool:
    return isinstance(record, CancelRequested) and not record.call_id and record.delivered is not None


def shortened(turn: Turn, prefix: str) -> Turn | None:
    """Return a turn with the beginning of its text; None if it holds more than text, or nothing would be left."""
    if not prefix.strip() or not all(isinstance(part, (Text, Thought)) for part in turn.parts):
        return None
    return Turn("model", (Text(text=prefix),))
