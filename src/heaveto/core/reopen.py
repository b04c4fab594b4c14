"""How a run goes on whose process died: what that had received is kept as cut off, and a further attempt begins."""

from __future__ import annotations

from collections.abc import Sequence

from heaveto.core.close import Stamp, cut_messages
from heaveto.core.fold import RunState
from heaveto.events.contents import calls_of
from heaveto.events.records import CallSettled, Draft, Message, Record, RunStarted, Trigger


def reopen_run(
    run: RunState, drafts: Sequence[Draft], *, stamp: Stamp, tree_hash: str, trigger: Trigger = "recovery"
) -> list[Record]:
    """Return the records that begin the next attempt of an open run.

    The calls of an answer that was cut off never came to be: they are settled as not started. Calls that were started
    stay as they are; whoever goes on with them decides by their tools' replay policies.

    Args:
        run: the run as its log tells it.
        drafts: what was received of messages that are not in the log.
        stamp: gives ids and times.
        tree_hash: that of the app that goes on.
        trigger: why it goes on.
    """
    cut = cut_messages([draft for draft in drafts if not draft.call_id], "crash", stamp)
    record_id, time = stamp()
    started = RunStarted(
        id=record_id, time=time, run_id=run.run_id, input=run.input, trigger=trigger, attempt=run.attempt + 1,
        agent=run.agent, tree_hash=tree_hash, limits=run.limits, settings=run.settings,
        parent=run.parent,
    )  # fmt: skip
    return [started, *cut, *_never_started(cut, stamp)]


def _never_started(cut: Sequence[Message], stamp: Stamp) -> list[Record]:
    settled: list[Record] = []
    for message in cut:
        for call in calls_of(message.parts):
            record_id, time = stamp()
            settled.append(
                CallSettled(
                    id=record_id, time=time, run_id=message.run_id, call_id=call.call_id, name=call.name,
                    status="not_started", cause="crash",
                )
            )  # fmt: skip
    return settled
