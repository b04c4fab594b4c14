"""How a run is handed over to the next process: what was under way is settled or left to go on, and the run pauses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from heaveto.core.close import Stamp, Work, cut_messages, output_response
from heaveto.core.fold import CallState, RunState
from heaveto.events.contents import calls_of, text_of
from heaveto.events.records import CallSettled, CallStatus, Draft, Paused, Record


def hand_over(
    run: RunState, *, stamp: Stamp, drafts: Sequence[Draft] = (), work: Mapping[str, Work] | None = None
) -> list[Record]:
    """Return the records that hand a run over: a pause that waits for nothing but the next process.

    An answer that was being streamed is kept as cut off. Calls that were interrupted, and that their tools let nobody
    execute again, are settled as what they are; the others stay open, and the next process goes on with them. Calls
    that wait for answers stay asked, and the pause does not wait for them: what worked beside them goes on.

    Args:
        run: the run as its log tells it.
        stamp: gives ids and times.
        drafts: what was received of messages that are not in the log, and what running calls have put out.
        work: what is known of started calls that have no outcome; a missing one is unknown.
    """
    put_out = {draft.call_id: text_of(draft.parts) for draft in drafts if draft.call_id}
    cut = cut_messages([draft for draft in drafts if not draft.call_id], "shutdown", stamp)
    records: list[Record] = list(cut)
    for message in cut:
        records.extend(
            _settled(run, call.call_id, call.name, "not_started", None, stamp) for call in calls_of(message.parts)
        )
    for call_id, call in run.calls.items():
        status = _status(run, call, (work or {}).get(call_id))
        if status is not None:
            records.append(_settled(run, call_id, call.call.name, status, put_out.get(call_id), stamp))
    record_id, time = stamp()
    return [*records, Paused(id=record_id, time=time, run_id=run.run_id, waiting=())]


def _status(run: RunState, call: CallState, at_work: Work | None) -> CallStatus | None:
    """What an interrupted call is settled as; None if it goes on."""
    if call.phase != "started" or call.settled is not None or run.waits_in(call.call.call_id):
        return None
    if at_work == "still_running":
        return "unknown"  # and nobody executes it again beside that
    if call.replay != "never":
        return None
    match at_work:
        case "stopped":
            return "cancelled"
        case "not_started":
            return "not_started"
        case None:
            return "unknown"


def _settled(
    run: RunState, call_id: str, name: str, status: CallStatus, put_out: str | None, stamp: Stamp
) -> CallSettled:
    record_id, time = stamp()
    return CallSettled(
        id=record_id, time=time, run_id=run.run_id, call_id=call_id, name=name, status=status,
        response=output_response(put_out), cause="shutdown",
    )  # fmt: skip
