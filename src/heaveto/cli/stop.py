"""The command ``heaveto stop``."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click

from heaveto.cli.describe import summary_of
from heaveto.cli.exits import FAILED
from heaveto.cli.outside import Stopped, by_option, outside, reason_option
from heaveto.cli.reading import find_session, reading, store_option
from heaveto.events.records import RunEnded, SessionKey


@click.command("stop")
@click.argument("run_id", required=False)
@click.option("--session", help="Stop what runs in this session, instead of a run by its id.")
@click.option("--user", help="Whose session, where several have the same id.")
@by_option
@reason_option
@click.option("--wait", default=10.0, show_default=True, help="Seconds to wait for the ending.")
@store_option
def command(
    run_id: str | None, session: str | None, user: str | None, by: str, reason: str, wait: float, store: Path
) -> None:
    """Stop a run, in whichever process it is carried, and show what became of its work.

    The request is durable at once. A run whose process died is not ended here, because its end hooks need its app:
    whoever opens the session next ends it as stopped. The exit code is 1 if the run has not ended in time.
    """
    if (run_id is None) == (session is None):
        raise click.UsageError("name a run, or a session with --session")
    key, wanted = _find(store, run_id, session, user)
    if wanted is None:
        click.echo(f"nothing runs in session {key}", err=True)
        return
    found = asyncio.run(_stop(store, key, wanted, by=by, reason=reason, wait=wait))
    click.echo(f"run {wanted} {in_words(found, wait)}")
    if found == "asked":
        sys.exit(FAILED)


def _find(store: Path, run_id: str | None, session: str | None, user: str | None) -> tuple[SessionKey, str | None]:
    with reading(store) as queries:
        if run_id is not None:
            key = queries.find_run(run_id)
            if key is None:
                raise click.UsageError(
                    f"there is no run {run_id!r} in {store}; `heaveto sessions` shows those that run"
                )
            return key, run_id
        assert session is not None
        info = find_session(queries, session, user)
        return info.key, info.open_run


async def _stop(store: Path, key: SessionKey, run_id: str, *, by: str, reason: str, wait: float) -> Stopped:
    async with outside(store, key) as (session, _):
        return await session.stop(run_id, by=by, reason=reason, patience_seconds=wait)


def in_words(found: Stopped, wait: float) -> str:
    """Return what became of a run that was asked to stop."""
    match found:
        case RunEnded():
            return f"has ended: {summary_of(found)}"
        case "dead":
            return "is marked as stopped; its process died, and whoever opens the session next ends it"
        case "asked":
            return f"was asked to stop, and has not ended within {wait:g} seconds"
