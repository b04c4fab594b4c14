"""The command ``heaveto sessions``."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal, TypeAlias, assert_never

import click

from heaveto.cli.reading import reading, store_option
from heaveto.stores.base import SessionInfo
from heaveto.stores.sqlite.reader import Queries

Carrier: TypeAlias = Literal["alive", "died", "nobody"]


@dataclass(frozen=True, slots=True)
class Found:
    """A session, and who carries the run that is open in it."""

    info: SessionInfo
    carrier: Carrier


@click.command("sessions")
@store_option
@click.option("--user", help="Only those of one user.")
@click.option("--limit", default=50, show_default=True, help="At most so many.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def command(store: Path, user: str | None, limit: int, as_json: bool) -> None:
    """List the sessions of a store, the most recently used first."""
    with reading(store) as queries:
        found = [Found(info, _carrier(queries, info)) for info in queries.sessions(None, user, limit, None)]
    if as_json:
        for session in found:
            click.echo(json.dumps(_as_json(session)))
    elif not found:
        click.echo("There are no sessions yet.", err=True)
    elif sys.stdout.isatty():
        _show_table(found)
    else:
        for session in found:
            click.echo("\t".join(_row(session)))


def _carrier(queries: Queries, info: SessionInfo) -> Carrier:
    holder = queries.holder(info.key)
    return "nobody" if holder is None else "alive" if holder.alive else "died"


def _as_json(session: Found) -> dict[str, object]:
    info = session.info
    return {
        "app": info.key.app, "user": info.key.user, "session": info.key.session, "created": info.created,
        "updated": info.updated, "records": info.last_seq, "open_run": info.open_run,
        "carrier": session.carrier if info.open_run else None,
    }  # fmt: skip


def _row(session: Found) -> tuple[str, ...]:
    info = session.info
    updated = datetime.fromtimestamp(info.updated).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    return str(info.key), str(info.last_seq), updated, _state(session)


def _state(session: Found) -> str:
    if session.info.open_run is None:
        return "idle"
    run = f"run {session.info.open_run}"
    match session.carrier:
        case "alive":
            return run
        case "died":
            return f"{run}: its process died; the next message, or Runner.recover(), closes it"
        case "nobody":
            return f"{run} waits for a process that carries it out"
        case _:
            assert_never(session.carrier)


def _show_table(found: list[Found]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0))
    table.add_column("session", overflow="fold")
    table.add_column("records", justify="right")
    table.add_column("updated", no_wrap=True)
    table.add_column("state")
    for session in found:
        table.add_row(*_row(session), style="yellow" if session.info.open_run else "")
    Console(width=shutil.get_terminal_size().columns, highlight=False).print(table, markup=False)
