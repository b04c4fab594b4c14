"""The command ``heaveto erase``."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click

from heaveto.cli.outside import by_option, outside, reason_option
from heaveto.cli.reading import find_session, reading, store_option
from heaveto.events.records import SessionKey
from heaveto.stores.base import Tombstone

_PATIENCE_SECONDS = 10.0


@click.command("erase")
@click.argument("session")
@click.option("--user", help="Whose session, where several have the same id.")
@by_option
@reason_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@store_option
def command(session: str, user: str | None, by: str, reason: str, yes: bool, store: Path) -> None:
    """Stop what runs in a session, delete its content for good, and leave a tombstone.

    SESSION is a session id, or a key such as app/user/session.
    """
    with reading(store) as queries:
        info = find_session(queries, session, user)
    if not yes:
        _confirm(f"Erase session {info.key} with {info.last_seq} records?")
    tombstone = asyncio.run(_erase(store, info.key, by=by, reason=reason))
    click.echo(f"session {info.key}: {tombstone.records} records erased by {tombstone.by}")


def _confirm(question: str) -> None:
    if not sys.stdin.isatty():
        raise click.UsageError("there is nobody to ask; pass --yes")
    click.confirm(question, abort=True, err=True)


async def _erase(store: Path, key: SessionKey, *, by: str, reason: str) -> Tombstone:
    async with outside(store, key) as (session, opened):
        for run_id in await session.open_runs():
            why = reason or "the session is erased"
            await session.stop(run_id, by=by, reason=why, patience_seconds=_PATIENCE_SECONDS)
        return await opened.erase_session(key, by=by, reason=reason)
