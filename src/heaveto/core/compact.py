"""When a conversation is summarised, and what of it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from heaveto.core.fold import SessionState, effective
from heaveto.core.project import View
from heaveto.core.request import ModelProfile, Turn
from heaveto.events.records import Compacted, Record


@dataclass(frozen=True, slots=True)
class CompactionPoint:
    """The records up to and including `upto` are to be summarised: behind it no run is open and no call is pending."""

    upto: int

    def turns(self, records: Sequence[Record], agent: str, profile: ModelProfile) -> Sequence[Turn]:
        """Return what is to be summarised, as the agent's model would be told it.

        What was summarised before is told as its summary, also where that was made behind the point.
        """
        before = [record for record in effective(records) if isinstance(record, Compacted) and record.seq > self.upto]
        return View(agent, "", profile).turns([*records[: self.upto], *before])


def compaction_point(
    state: SessionState, *, after_runs: int | None, after_tokens: int | None, keep_runs: int
) -> CompactionPoint | None:
    """Return what is to be summarised now, or None.

    Costs the same however long the session is. Runs that are paused, and calls in the background, are not summarised
    away: the point lies before them.
    """
    if state.current is not None:
        return None
    growth = state.growth
    is_long = after_runs is not None and len(growth.ends) >= after_runs + keep_runs
    is_large = after_tokens is not None and growth.request_tokens >= after_tokens
    if not (is_long or is_large):
        return None
    upto = growth.boundary(keep_runs=keep_runs)
    return CompactionPoint(upto) if upto is not None else None
