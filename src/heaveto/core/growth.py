"""How a conversation has grown since it was summarised: counted as records come, so that asking costs nothing (P9)."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

from heaveto.events.records import Compacted, Message


@dataclass(slots=True)
class Growth:
    """What no summary covers.

    Attributes:
        ends: the seqs of the endings of runs that are not summarised, ascending.
        request_tokens: the largest model request of the conversation since the last summary was made. What agents ask
            in isolated branches does not count: no summary makes it smaller.
    """

    ends: list[int] = field(default_factory=list[int])
    request_tokens: int = 0

    def run_ended(self, seq: int) -> None:
        self.ends.append(seq)

    def said(self, message: Message) -> None:
        if message.usage is not None and message.seen and "@" not in message.branch:
            self.request_tokens = max(self.request_tokens, message.usage.input_tokens)

    def summarised(self, summary: Compacted) -> None:
        del self.ends[: bisect_left(self.ends, summary.upto + 1)]
        self.request_tokens = 0

    def boundary(self, *, keep_runs: int, before: int) -> int | None:
        """Return the seq of the last ending that lies before a seq, with at least `keep_runs` runs behind it."""
        count = min(len(self.ends) - keep_runs, bisect_left(self.ends, before))
        return self.ends[count - 1] if count > 0 else None
