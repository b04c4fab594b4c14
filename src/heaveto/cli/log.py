"""The command ``heaveto log``."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

import click

from heaveto.cli.describe import shortened, summary_of
from heaveto.cli.exits import INTERRUPTED
from heaveto.cli.reading import find_session, reading, store_option
from heaveto.events import codec
from heaveto.events.records import (
    CallSettled,
    CancelRequested,
    Message,
    Record,
    RunEnded,
    RunStarted,
    SessionKey,
)
from heaveto.stores.sqlite.reader import Queries

_POLL_SECONDS = 0.1
_SHORT_RUN_ID = 6
_COLOURS = {"completed": "green", "cancelled": "yellow", "failed": "red"}


@click.command("log")
@click.argument("session")
@store_option
@click.option("--user", help="Whose session, where several have the same id.")
@click.option("--json", "as_json", is_flag=True, help="The records as they are stored, one per line.")
@click.option("--follow", "-f", is_flag=True, help="Go on with what is appended; Ctrl-C leaves.")
def command(session: str, store: Path, user: str | None, as_json: bool, follow: bool) -> None:
    """Show what a session's log holds.

    SESSION is a session id, or a key such as app/user/session. Reading never changes the store.
    """
    with reading(store) as queries:
        key = find_session(queries, session, user).key
        page = _Page(as_json=as_json)
        try:
            for records in _batches(queries, key, follow=follow):
                for record in records:
                    page.print(record)
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)


def _batches(queries: Queries, key: SessionKey, *, follow: bool) -> Iterator[Sequence[Record]]:
    after = 0
    while True:
        records = queries.records(key, after, None)
        if records:
            after = records[-1].seq
            yield records
        if not follow:
            return
        time.sleep(_POLL_SECONDS)


class _Page:
    """The timeline as it is printed: on a terminal a day has a line of its own, else each line has its date."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json, self._day = as_json, ""
        self._width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None

    def print(self, record: Record) -> None:
        if self._as_json:
            click.echo(as_line(record))
            return
        day = f"{_local(record):%Y-%m-%d}"
        if self._width is not None and day != self._day:
            click.echo(click.style(day, underline=True))
        self._day = day
        click.echo(_timeline(record, self._width))


def _local(record: Record) -> datetime:
    return datetime.fromtimestamp(record.time).astimezone()


def as_line(record: Record) -> str:
    """Return the record as it is stored, in one line of JSON, with its seq."""
    stored = json.loads(codec.encode(record))
    return json.dumps({"seq": record.seq, **stored}, ensure_ascii=False)


def _timeline(record: Record, width: int | None) -> str:
    when = _local(record).strftime("%H:%M:%S.%f" if width is not None else "%Y-%m-%d %H:%M:%S.%f")[:-3]
    run = record.run_id[-_SHORT_RUN_ID:]
    head = f"{record.seq:>5}  {when}  {run:<{_SHORT_RUN_ID}}  {type(record).__name__:<15} "
    text = summary_of(record)
    line = click.style(head, dim=not isinstance(record, RunStarted)) + _coloured(
        record, text if width is None else shortened(text, width - len(head))
    )
    return f"\n{line}" if isinstance(record, RunStarted) and record.seq > 1 else line


def _coloured(record: Record, text: str) -> str:
    match record:
        case RunStarted():
            return click.style(text, bold=True)
        case RunEnded(outcome=outcome):
            return click.style(text, fg=_COLOURS[outcome])
        case CallSettled(status=status) if status != "succeeded":
            return click.style(text, fg="yellow")
        case CancelRequested():
            return click.style(text, fg="yellow")
        case Message(interrupted=cause) if cause is not None:
            return click.style(text, fg="yellow")
        case _:
            return text
