"""A session taken back to an earlier point, and a new one that begins from there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from heaveto.artifacts.base import ArtifactService
from heaveto.artifacts.naming import is_of_user
from heaveto.core.close import Ending, close_run
from heaveto.core.fold import SHARED_PREFIXES, SessionState, effective, fold
from heaveto.core.rewind import check_point, rewind
from heaveto.errors import InputError, LogMovedError, UnknownRunError
from heaveto.events.records import (
    CallSettled,
    CancelRequested,
    Record,
    Rewound,
    RunEnded,
    RunStarted,
    SessionKey,
    StateChanged,
)
from heaveto.runner.services import Services
from heaveto.runner.session.desk import CallDesk
from heaveto.runner.session.log import SessionLog
from heaveto.stores.base import Lease, SessionInfo


async def rewind_session(
    services: Services, log: SessionLog, lease: Lease, *, to: int | None, before_run: str | None
) -> Rewound:
    """Record that what came behind a point counts no more. Under the lease, with no run open but paused ones."""
    point = _point(log.state, to, before_run)
    check_point(log.state.records, point)
    working = [call for call in log.state.background.values() if call.seq > point]
    if working:
        # Nobody shall hear of what they come to.
        await CallDesk(services, log).cancel_all(working, "superseded", reason="the session was taken back")
    while True:
        records = rewind(log.state, point, stamp=services.stamp)
        rewound = records[-1]
        assert isinstance(rewound, Rewound)
        try:  # conditional: a paused run that is stopped is closed from the side, and has one ending
            last_seq = await log.append(records, token=lease.token, expect=log.state.last_seq)
        except LogMovedError:
            await log.refresh()
        else:
            return replace(rewound, seq=last_seq)


def _point(state: SessionState, to: int | None, before_run: str | None) -> int:
    if (to is None) == (before_run is None):
        raise InputError("rewind: pass either to= or before_run=")
    if to is not None:
        return to
    run = state.runs.get(before_run or "")
    if run is None or not run.started_seq:
        raise UnknownRunError(before_run or "")
    if not any(isinstance(one, RunStarted) and one.seq == run.started_seq for one in effective(state.records)):
        raise InputError(f"rewind: run {before_run} was taken back before")
    return run.started_seq - 1


async def fork_session(services: Services, log: SessionLog, key: SessionKey, *, at: int) -> SessionInfo:
    """Copy a log up to a seq, and the artifacts, into a new session; close there what is open.

    The log comes in one append: a process that dies on the way leaves no half of it, which would be gone on with.
    """
    if not 0 <= at <= log.state.last_seq:
        raise InputError(f"fork: the session has the seqs 1 to {log.state.last_seq}; not {at}")
    copied = list(_copied(services, log.state.records[:at]))
    state = fold(replace(record, seq=number) for number, record in enumerate(copied, start=1))
    info = await services.store.create_session(key)
    lease = await services.store.claim(key)
    try:
        await _copy_artifacts(services.artifacts, log.key, key)
        if copied:
            await services.store.append(key, [*copied, *_closed(services, state)], token=lease.token)
    finally:
        # Their end hooks were told in the session that was copied.
        await services.store.release(lease, settled=[run_id for run_id in state.runs if run_id])
    return await services.store.get_session(key) or info


async def _copy_artifacts(artifacts: ArtifactService, source: SessionKey, target: SessionKey) -> None:
    """Copy the artifacts of a session, all versions. Those of its user are the same for both."""
    for info in await artifacts.list(source):
        if is_of_user(info.name):
            continue
        for version in await artifacts.versions(source, info.name):
            content = await artifacts.load(source, info.name, version)
            if content is not None:
                await artifacts.save(target, info.name, content)


def _copied(services: Services, records: Sequence[Record]) -> Iterator[Record]:
    """Yield the records with run ids of their own: those are unique in a store. The seqs stay, which records refer to.

    The state that the session shares with others is as it is now, and not set once more.
    """
    run_ids: dict[str, str] = {}
    for record in records:
        run_id = run_ids.setdefault(record.run_id, services.ids.record_id()) if record.run_id else ""
        copy = replace(record, run_id=run_id)
        match copy:
            case CallSettled():
                yield replace(copy, child_run="")
            case RunStarted():
                yield replace(copy, parent=None)
            case StateChanged():
                own = {key: value for key, value in copy.delta.items() if not key.startswith(SHARED_PREFIXES)}
                yield replace(copy, delta=own)
            case CancelRequested():
                yield replace(copy, by=run_ids.get(copy.by, copy.by))
            case RunEnded():
                report = None if copy.report is None else replace(copy.report, run_id=run_id)
                yield replace(copy, by=run_ids.get(copy.by, copy.by), report=report)
            case _:
                yield copy


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
