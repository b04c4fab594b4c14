"""When a conversation is summarised, and what of it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from heaveto.core.fold import SessionState, effective
from heaveto.core.project import View
from heaveto.core.request import Profile, Turn
from heaveto.events.records import Compacted, Message, Record, RunEnded, RunStarted


@dataclass(frozen=True, slots=True)
class CompactionPoint:
    """The records up to and including `upto` are to be summarised: behind it no run is open and no call is pending."""

    upto: int

    def turns(self, records: Sequence[Record], agent: str, profile: Profile) -> Sequence[Turn]:
        """Return what is to be summarised, as the agent's model would be told it; earlier summaries stand in it."""
        return View(agent, "", profile).turns(records[: self.upto])


def compaction_point(
    state: SessionState, *, after_runs: int | None, after_tokens: int | None, keep_runs: int
) -> CompactionPoint | None:
    """Return what is to be summarised now, or None.

    Looks only at what came since the last summary. Runs that are paused, and calls in the background, are not
    summarised away: the point lies before them.
    """
    if state.current is not None:
        return None
    since = _records_since_summary(state.records)
    ends = [record.seq for record in since if isinstance(record, RunEnded)]
    started = [record.seq for record in since if isinstance(record, RunStarted)]
    is_long = after_runs is not None and len(ends) >= after_runs + keep_runs
    is_large = after_tokens is not None and _last_request(since) >= after_tokens
    if not (is_long or is_large) or not started:
        return None
    bound = min([run.started_seq for run in state.paused.values()] + [call.seq for call in state.background.values()],
                default=state.last_seq + 1)  # fmt: skip
    candidates = [seq for seq in ends[: len(ends) - keep_runs] if seq < bound]
    return CompactionPoint(max(candidates)) if candidates else None


def _records_since_summary(records: Sequence[Record]) -> list[Record]:
    kept = effective(records)
    upto = max((record.upto for record in kept if isinstance(record, Compacted)), default=0)
    return [record for record in kept if record.seq > upto]


def _last_request(records: Sequence[Record]) -> int:
    """The tokens of the newest model request."""
    for record in reversed(records):
        if isinstance(record, Message) and record.usage is not None and record.seen:
            return record.usage.input_tokens
    return 0
