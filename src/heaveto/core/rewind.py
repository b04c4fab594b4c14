"""Going back: to which points of a log that is possible, and what of it cannot be undone. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from heaveto.core.close import Ending, Stamp, close_run
from heaveto.core.fold import SessionState, effective
from heaveto.errors import RewindPointError
from heaveto.events.records import CallSettled, CallStarted, Record, Rewound, RunEnded, RunStarted


def check_point(records: Sequence[Record], to: int) -> None:
    """Check that a session can be taken back to a seq: it exists, still counts, and no run is open there.

    Raises:
        RewindPointError: it cannot; the error names the nearest points before and behind it.
    """
    points = rewind_points(records)
    if to not in points:
        before = max((point for point in points if point < to), default=0)
        behind = min((point for point in points if point > to), default=None)
        raise RewindPointError(to, before, behind)


def rewind_points(records: Sequence[Record]) -> set[int]:
    """Return the seqs behind which no run is open, 0 included. A run that is paused there is open."""
    points, open_runs = {0}, set[str]()
    for record in effective(records):
        if isinstance(record, RunStarted):
            open_runs.add(record.run_id)
        elif isinstance(record, RunEnded):
            open_runs.discard(record.run_id)
        if not open_runs:
            points.add(record.seq)
    return points


def rewind(
    state: SessionState, to: int, *, stamp: Stamp, run_id: str = "", closed: Collection[str] = ()
) -> list[Record]:
    """Return the records that take a session back to a seq: endings of paused runs that began behind it, and the fact.

    Args:
        state: the session.
        to: the seq.
        stamp: gives ids and times.
        run_id: the run that wants it, if one does.
        closed: paused runs that end in the same batch anyway.
    """
    ending = Ending("cancelled", "superseded", by=run_id, reason="the session was taken back")
    taken_back = [run for run in state.paused.values() if run.started_seq > to and run.run_id not in closed]
    closing = [record for run in taken_back for record in close_run(run, ending, stamp=stamp)]
    record_id, time = stamp()
    effects = not_undone(state.records, to)
    return [*closing, Rewound(id=record_id, time=time, run_id=run_id, to=to, not_undone=effects)]


def not_undone(records: Sequence[Record], to: int) -> tuple[str, ...]:
    """Return the effects behind a seq that remain in the world: calls that were started, but those that are safe."""
    settled = {record.call_id: record for record in records if isinstance(record, CallSettled)}
    effects: dict[str, str] = {}
    for record in effective(records):
        if record.seq > to and isinstance(record, CallStarted) and record.replay != "safe":
            outcome = settled.get(record.call_id)
            effects[record.call_id] = f"{record.name} {record.call_id}: {outcome.status if outcome else 'unknown'}"
    return tuple(effects.values())
