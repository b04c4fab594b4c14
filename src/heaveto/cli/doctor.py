"""The command ``heaveto doctor``."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import click

from heaveto.cli.describe import counted
from heaveto.cli.exits import FAILED
from heaveto.cli.reading import DEFAULT_STORE, connect_to_read, require_store
from heaveto.clock import SystemClock
from heaveto.core.fold import fold
from heaveto.errors import HeavetoError
from heaveto.events.records import RunEnded, RunStarted
from heaveto.stores.base import SessionInfo
from heaveto.stores.sqlite.reader import Queries
from heaveto.stores.sqlite.schema import MIGRATIONS, typed_error

Level = Literal["ok", "note", "wrong"]
_MARKS: dict[Level, tuple[str, str]] = {"ok": ("ok", "green"), "note": ("note", "yellow"), "wrong": ("WRONG", "red")}
_ALL = 1_000_000


@dataclass(frozen=True, slots=True)
class Finding:
    """What was looked at, what was found, and what to do about it."""

    level: Level
    what: str
    do: str = ""


@click.command("doctor")
@click.argument("store", type=click.Path(path_type=Path), default=DEFAULT_STORE)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per finding.")
def command(store: Path, as_json: bool) -> None:
    """Check a store file: damage, schema, logs, unfinished runs, leases of the dead; and say what to do.

    STORE is its file, heaveto.db if none is named. It is opened for reading only. The exit code is 1 if something is
    wrong; unfinished runs are not wrong: a runner that opens the store closes them.
    """
    findings: list[Finding] = []
    for finding in examine(store):
        findings.append(finding)
        _show(finding, as_json=as_json)
    if any(finding.level == "wrong" for finding in findings):
        sys.exit(FAILED)


def examine(path: Path) -> Iterator[Finding]:
    """Look at a store and yield what is found. Writes nothing."""
    if not path.is_file():
        yield Finding("wrong", f"there is no file {path}", "check the path; a store is created by its first use")
        return
    try:
        with closing(connect_to_read(path)) as connection:
            yield from _examine_file(connection, path)
    except sqlite3.Error as error:
        yield Finding("wrong", str(typed_error(error, path)), _RESTORE)
    except HeavetoError as error:
        yield Finding("wrong", str(error), _ADVICE.get(error.code, ""))


_RESTORE = "keep the file as it is, and restore a backup; sqlite3's .recover may save what is left"
_ADVICE = {
    "StoreCorruptError": "name another file",
    "StoreTooNewError": "upgrade heaveto",
    "RecordFormatError": "upgrade heaveto, or restore a backup",
}


def _examine_file(connection: sqlite3.Connection, path: Path) -> Iterator[Finding]:
    version = require_store(connection, path)
    older = version < len(MIGRATIONS)
    yield Finding("note" if older else "ok", f"schema version {version}", "the next use migrates it" if older else "")
    problems = [row[0] for row in connection.execute("PRAGMA integrity_check(20)") if row[0] != "ok"]
    if problems:
        yield from (Finding("wrong", f"the file is damaged: {problem}", _RESTORE) for problem in problems)
        return
    yield Finding("ok", "the file is whole")
    queries = Queries(connection, path, "", SystemClock())
    sessions = queries.sessions(None, None, _ALL, None)
    yield from _examine_logs(queries, sessions)
    yield from _examine_leases(queries, sessions)
    yield from _examine_runs(queries)


def _examine_logs(queries: Queries, sessions: list[SessionInfo]) -> Iterator[Finding]:
    records = 0
    sound = True
    for info in sessions:
        records += info.last_seq
        try:
            problem = _log_problem(queries, info)
        except HeavetoError as error:
            problem, advice = str(error), _ADVICE.get(error.code, "")
        else:
            advice = "restore a backup, or erase the session"
        if problem:
            sound = False
            yield Finding("wrong", f"session {info.key}: {problem}", advice)
    if sound:
        yield Finding("ok", f"{counted(len(sessions), 'session')} with {counted(records, 'record')}, every log folds")


def _log_problem(queries: Queries, info: SessionInfo) -> str:
    """Return what is wrong with a session's log; empty if nothing."""
    records = queries.records(info.key, 0, None)
    if [record.seq for record in records] != list(range(1, info.last_seq + 1)):
        return f"its log should hold the records 1 to {info.last_seq}, and holds {len(records)}"
    fold(records)
    ended: set[str] = set()
    for record in records:
        if record.run_id in ended and isinstance(record, RunStarted | RunEnded):
            return f"run {record.run_id} has a {type(record).__name__} behind its ending"
        ended |= {record.run_id} if isinstance(record, RunEnded) else set()
    return ""


def _examine_leases(queries: Queries, sessions: list[SessionInfo]) -> Iterator[Finding]:
    dead = 0
    for info in sessions:
        holder = queries.holder(info.key)
        if holder is None:
            continue
        dead += not holder.alive
        if holder.alive:
            yield Finding("ok", f"session {info.key} is held by {holder.owner}, which is alive")
    if dead:
        whose = f"{counted(dead, 'session')} held by processes that died"
        yield Finding("note", whose, "nothing: whoever needs such a session next takes it over")


def _examine_runs(queries: Queries) -> Iterator[Finding]:
    unfinished = queries.unfinished(None)
    for entry in unfinished:
        holder = queries.holder(entry.key)
        if holder is not None and holder.alive:
            yield Finding("ok", f"run {entry.run_id} of {entry.key} is being carried out")
        elif entry.ended:
            advice = "start the service: its recovery calls the hook"
            yield Finding(
                "note", f"run {entry.run_id} of {entry.key} has ended, its end hook was not confirmed", advice
            )
        else:
            advice = "start the service, or call Runner.recover(): it closes what died and carries out what waits"
            yield Finding("note", f"run {entry.run_id} of {entry.key} is unfinished, and nobody carries it", advice)
    if not unfinished:
        yield Finding("ok", "no unfinished runs")


def _show(finding: Finding, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(asdict(finding)))
        return
    mark, colour = _MARKS[finding.level]
    click.echo(click.style(f"{mark:>6}", fg=colour) + f"  {finding.what}")
    if finding.do:
        click.echo(f"        -> {finding.do}")
