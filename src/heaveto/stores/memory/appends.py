"""What an append to a session in memory checks, and what it does."""

from __future__ import annotations

from heaveto.errors import DuplicateRecordError, GuardTakenError, LogMovedError, RunIdTakenError, StaleLeaseError
from heaveto.events.records import SessionKey
from heaveto.stores.base import Guard
from heaveto.stores.batch import Batch
from heaveto.stores.memory.data import MemoryData, RunEntry, Session


def append(
    data: MemoryData,
    key: SessionKey,
    batch: Batch,
    now: float,
    *,
    token: int | None,
    expect: int | None,
    guard: Guard | None,
) -> tuple[int, bool]:
    """Append a batch; return the last seq, and whether it is new. Everything is checked first; see `Store.append`."""
    session = data.session(key)
    if repeated := _repeated(session, batch):
        return repeated, False
    _check(key, session, token, expect, guard)
    for run_id in batch.opened:
        if data.run_sessions.get(run_id, key) != key:
            raise RunIdTakenError(run_id)
    _check_new(key, session, batch)
    if guard:
        session.guards[guard.name] = guard.value
    store(data, key, session, batch, now)
    return session.last_seq, True


def store(data: MemoryData, key: SessionKey, session: Session, batch: Batch, now: float) -> None:
    """Store a batch that was checked, and do what its records do besides."""
    for record_id, body in batch.rows:
        session.bodies.append(body)
        session.seq_of[record_id] = len(session.bodies)
    if batch.rows:
        session.updated = data.tick(now)
    for run_id in batch.opened:
        session.runs.setdefault(run_id, RunEntry(next(data.numbers)))
        data.run_sessions.setdefault(run_id, key)
    for run_id in batch.ended:
        if run_id in session.runs:
            session.runs[run_id].ended = True
    if session.drafts:
        _drop_drafts(session, batch)
    data.share(key, batch.shared)


def _drop_drafts(session: Session, batch: Batch) -> None:
    said, ended = set(batch.said), set(batch.ended)
    for message_id, (run_id, _) in list(session.drafts.items()):
        if message_id in said or run_id in ended:
            del session.drafts[message_id]


def _repeated(session: Session, batch: Batch) -> int | None:
    """Return the seq of an earlier append of the same records in the same order, or None."""
    seqs = [session.seq_of.get(record_id, 0) for record_id, _ in batch.rows]
    if not seqs or seqs[0] == 0 or seqs != list(range(seqs[0], seqs[0] + len(seqs))):
        return None
    return seqs[-1]


def _check(key: SessionKey, session: Session, token: int | None, expect: int | None, guard: Guard | None) -> None:
    if token is not None and (token != session.token or session.owner is None):
        raise StaleLeaseError(key, held=token, current=session.token)
    if expect is not None and expect != session.last_seq:
        raise LogMovedError(key, expected=expect, current=session.last_seq)
    if guard is not None and guard.name in session.guards:
        raise GuardTakenError(key, guard.name, session.guards[guard.name])


def _check_new(key: SessionKey, session: Session, batch: Batch) -> None:
    seen: set[str] = set()
    for record_id, _ in batch.rows:
        if record_id in session.seq_of or record_id in seen:
            raise DuplicateRecordError(key, record_id)
        seen.add(record_id)
