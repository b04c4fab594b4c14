"""A session taken back to an earlier point, and a new one that begins from there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from heaveto.core.close import Ending, close_run
from heaveto.core.fold import SessionState, fold
from heaveto.core.rewind import check_point, not_undone
from heaveto.errors import InputError, UnknownRunError
from heaveto.events.records import CallSettled, Record, Rewound, SessionKey
from heaveto.runner.log import SessionLog
from heaveto.runner.services import Services
from heaveto.stores.base import Lease, SessionInfo

_BATCH = 500


async def rewind_session(
    services: Services, log: SessionLog, lease: Lease, *, to: int | None, before_run: str | None
) -> Rewound:
    """Record that what came behind a point counts no more. Under the lease, with no run open but paused ones."""
    point = _point(log.state, to, before_run)
    check_point(log.state.records, point)
    ending = Ending("cancelled", "superseded", reason="the session was taken back")
    taken_back = [run for run in log.state.paused.values() if run.started_seq > point]
    closing = [record for run in taken_back for record in close_run(run, ending, stamp=services.stamp)]
    record_id, time = services.stamp()
    rewound = Rewound(id=record_id, time=time, to=point, not_undone=not_undone(log.state.records, point))
    await log.append([*closing, rewound], token=lease.token)
    return rewound


def _point(state: SessionState, to: int | None, before_run: str | None) -> int:
    if (to is None) == (before_run is None):
        raise InputError("rewind: pass either to= or before_run=")
    if to is not None:
        return to
    run = state.runs.get(before_run or "")
    if run is None or not run.started_seq:
        raise UnknownRunError(before_run or "")
    return run.started_seq - 1


async def fork_session(services: Services, log: SessionLog, key: SessionKey, *, at: int) -> SessionInfo:
    """Copy a log up to a seq into a new session, and close there what is open."""
    if not 0 <= at <= log.state.last_seq:
        raise InputError(f"fork: the session has the seqs 1 to {log.state.last_seq}; not {at}")
    copied = list(_copied(services, log.state.records[:at]))
    info = await services.store.create_session(key)
    lease = await services.store.claim(key)
    try:
        for start in range(0, len(copied), _BATCH):
            await services.store.append(key, copied[start : start + _BATCH], token=lease.token)
        state = fold([replace(record, seq=number) for number, record in enumerate(copied, start=1)])
        closing = list(_closed(services, state))
        if closing:
            await services.store.append(key, closing, token=lease.token)
    finally:
        # Their end hooks were told in the session that was copied.
        await services.store.release(lease, settled=sorted({record.run_id for record in copied if record.run_id}))
    return await services.store.get_session(key) or info


def _copied(services: Services, records: Sequence[Record]) -> Iterator[Record]:
    """Yield the records with run ids of their own: those are unique in a store. The seqs stay, which records refer to."""
    run_ids: dict[str, str] = {}
    for record in records:
        run_id = run_ids.setdefault(record.run_id, services.ids.record_id()) if record.run_id else ""
        copy = replace(record, run_id=run_id)
        yield replace(copy, child_run="") if isinstance(copy, CallSettled) else copy


def _closed(services: Services, state: SessionState) -> Iterator[Record]:
    """Yield the endings of runs that are open in a copy, and what is told of its calls in the background."""
    ending = Ending("cancelled", "superseded", reason="the session was copied in the midst of it")
    for run in state.runs.values():
        if run.ended is None and (run.is_open or run.run_id in state.queue):
            yield from close_run(run, ending, stamp=services.stamp)
    for call_id, call in state.background.items():
        record_id, time = services.stamp()
        yield CallSettled(
            id=record_id, time=time, run_id=call.run_id, call_id=call_id, name=call.call.name, status="unknown",
            cause="lease_lost", late=True,
        )  # fmt: skip
