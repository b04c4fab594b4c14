"""How a conversation has grown since it was summarised: counted as records come, so that asking costs nothing (P9)."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from heaveto.events.records import CallSettled, Compacted, Message, Record, RunEnded, RunStarted


@dataclass(slots=True)
class Growth:
    """What no summary covers.

    Attributes:
        ends: the seqs of the endings of runs that are not summarised, ascending.
        boundaries: those of them behind which nothing was open: no run that was paused, no call in the background.
        request_tokens: the largest model request of the conversation since the last summary was made. What agents ask
            in isolated branches does not count: no summary makes it smaller.
    """

    ends: list[int] = field(default_factory=list[int])
    boundaries: list[int] = field(default_factory=list[int])
    request_tokens: int = 0
    _open: set[str] = field(default_factory=set[str])
    """Runs and background calls, by id."""

    def take(self, record: Record) -> None:
        """Take one record more, of those that count."""
        match record:
            case RunStarted():
                self._open.add(record.run_id)
            case RunEnded() if record.run_id in self._open:
                self._open.discard(record.run_id)
                self.ends.append(record.seq)
                if not self._open:
                    self.boundaries.append(record.seq)
            case CallSettled(status="detached"):
                self._open.add(record.call_id)
            case CallSettled():
                self._open.discard(record.call_id)
            case Message() if record.usage is not None and record.seen and "@" not in record.branch:
                self.request_tokens = max(self.request_tokens, record.usage.input_tokens)
            case Compacted():
                del self.ends[: bisect_right(self.ends, record.upto)]
                del self.boundaries[: bisect_right(self.boundaries, record.upto)]
                self.request_tokens = 0
            case _:
                pass

    def boundary(self, *, keep_runs: int) -> int | None:
        """Return the last boundary with at least `keep_runs` endings behind it."""
        last = len(self.ends) - keep_runs - 1
        count = bisect_right(self.boundaries, self.ends[last]) if last >= 0 else 0
        return self.boundaries[count - 1] if count else None
