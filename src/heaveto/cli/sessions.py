"""The command ``heaveto sessions``."""

from __future__ import annotations

import json
import shutil
import sys
from datetime import datetime
from pathlib import Path

import click

from heaveto.cli.reading import reading, store_option
from heaveto.stores.base import SessionInfo


@click.command("sessions")
@store_option
@click.option("--user", help="Only those of one user.")
@click.option("--limit", default=50, show_default=True, help="At most so many.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def command(store: Path, user: str | None, limit: int, as_json: bool) -> None:
    """List the sessions of a store, the most recently used first."""
    with reading(store) as queries:
        found = queries.sessions(None, user, limit, None)
    if as_json:
        for info in found:
            click.echo(json.dumps(_as_json(info)))
    elif not found:
        click.echo("There are no sessions yet.", err=True)
    elif sys.stdout.isatty():
        _show_table(found)
    else:
        for info in found:
            click.echo("\t".join(_row(info)))


def _as_json(info: SessionInfo) -> dict[str, object]:
    return {
        "app": info.key.app, "user": info.key.user, "session": info.key.session, "created": info.created,
        "updated": info.updated, "records": info.last_seq, "open_run": info.open_run,
    }  # fmt: skip


def _row(info: SessionInfo) -> tuple[str, ...]:
    updated = datetime.fromtimestamp(info.updated).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    state = f"run {info.open_run}" if info.open_run else "idle"
    return str(info.key), str(info.last_seq), updated, state


def _show_table(found: list[SessionInfo]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0))
    table.add_column("session", overflow="fold")
    table.add_column("records", justify="right")
    table.add_column("updated", no_wrap=True)
    table.add_column("state")
    for info in found:
        table.add_row(*_row(info), style="yellow" if info.open_run else "")
    Console(width=shutil.get_terminal_size().columns, highlight=False).print(table, markup=False)
