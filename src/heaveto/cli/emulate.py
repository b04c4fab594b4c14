"""The command ``heaveto emulate``."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import datetime
from http import HTTPStatus
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TextIO

import click

from heaveto.cli.exits import INTERRUPTED
from heaveto.errors import MissingExtraError
from heaveto.testing.emulator import Emulator, Exchange
from heaveto.testing.emulator.echo import echo
from heaveto.testing.script_file import read_steps

_SECRET = ("authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie")


@click.command("emulate")
@click.option("--port", default=0, show_default="a free one", help="The port on 127.0.0.1.")
@click.option(
    "--script",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="What it answers: JSON or JSON lines.",
)
@click.option("--strict/--no-strict", default=False, help="Refuse requests beyond the script, or repeat its last step.")
@click.option("--strict-unconfirmed", is_flag=True, help="Apply also rules that no public report confirms.")
@click.option("--prompt-cache", is_flag=True, help="Count known starts of prompts as cached tokens.")
@click.option("--log", type=click.Path(dir_okay=False, path_type=Path), help="Append each request, as a JSON line.")
def command(
    port: int, script: Path | None, strict: bool, strict_unconfirmed: bool, prompt_cache: bool, log: Path | None
) -> None:
    """Serve OpenAI, Anthropic and Gemini on loopback, for any program to be pointed at; no key needed.

    Each request is judged by the rules of its provider. Without a script, the model calls the first tool that it is
    given and says what came of it, or repeats what the user said. Ctrl-C ends it.
    """
    if find_spec("uvicorn") is None:
        raise MissingExtraError("emulator", "the emulator")
    steps: Sequence[Any] = [echo] if script is None else read_steps(script.read_text(encoding="utf-8"))
    with nullcontext() if log is None else log.open("a", encoding="utf-8") as file:
        emulator = Emulator(
            *steps, strict=strict and script is not None, strict_unconfirmed=strict_unconfirmed, port=port,
            prompt_cache=prompt_cache, on_over=lambda exchange: _tell(exchange, file),
        )  # fmt: skip
        try:
            asyncio.run(_serve(emulator, port))
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)


async def _serve(emulator: Emulator, port: int) -> None:
    try:
        await emulator.__aenter__()
    except OSError as error:
        raise click.ClickException(f"cannot serve on port {port}: {error.strerror}") from None
    try:
        _greet(emulator)
        await asyncio.Event().wait()
    finally:
        await emulator.__aexit__(None, None, None)


def _greet(emulator: Emulator) -> None:
    servers = (
        ("OpenAI Chat, Responses", "OPENAI_BASE_URL", emulator.openai_url, "OPENAI_API_KEY"),
        ("Anthropic Messages", "ANTHROPIC_BASE_URL", emulator.anthropic_url, "ANTHROPIC_API_KEY"),
        ("Gemini", "GOOGLE_GEMINI_BASE_URL", emulator.google_url, "GEMINI_API_KEY"),
    )
    for title, variable, url, key in servers:
        click.echo(f"{click.style(title, bold=True)}\n  export {variable}={click.style(url, fg='cyan')} {key}=any")
    _say(click.style("Ctrl-C ends it.", dim=True))


def _tell(exchange: Exchange, log: TextIO | None) -> None:
    """Show a request that is over, and log it."""
    now = datetime.now().astimezone()
    if log is not None:
        log.write(json.dumps(_record(exchange, now.isoformat(timespec="milliseconds"))) + "\n")
        log.flush()
    is_told = not exchange.model or exchange.model in exchange.path  # Gemini's paths name the model
    what = f"{exchange.method} {exchange.path}" + ("" if is_told else f" {exchange.model}")
    when = click.style(now.strftime("%H:%M:%S"), dim=True)
    _say(f"{when} {exchange.api:<16} {exchange.status or '-'} {what} {_end(exchange)}")


def _say(line: str) -> None:
    click.echo(line)
    sys.stdout.flush()


def _end(exchange: Exchange) -> str:
    broken = exchange.violation
    if broken is not None:
        doubt = " (unconfirmed)" if broken.unconfirmed else ""
        return click.style(f"✗ {broken}{doubt}", fg="red")
    seconds = _seconds(exchange)
    size = f"{exchange.bytes_sent} B in " + (f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms")
    if exchange.completed_at is None:
        return click.style(f"closed after {size}", fg="yellow")
    if exchange.status == HTTPStatus.NOT_FOUND:
        return click.style("✗ not found", fg="yellow")
    is_good = exchange.status == HTTPStatus.OK
    return click.style(f"{'✓' if is_good else '✗'} {size}", fg="green" if is_good else "yellow")


def _seconds(exchange: Exchange) -> float:
    end = exchange.completed_at or exchange.closed_at or exchange.received_at
    return end - exchange.received_at


def _record(exchange: Exchange, ended: str) -> dict[str, Any]:
    """Return what the log says of a request. Keys are left out of it."""
    broken = exchange.violation
    rule = {"rule": broken.rule, "message": broken.message, "unconfirmed": broken.unconfirmed} if broken else None
    headers = {name: "…" if name in _SECRET else value for name, value in exchange.headers.items()}
    return {
        "ended": ended, "api": exchange.api, "method": exchange.method, "path": exchange.path, "model": exchange.model,
        "status": exchange.status, "violation": rule, "end": "closed" if exchange.completed_at is None else "completed",
        "seconds": round(_seconds(exchange), 4), "bytes_sent": exchange.bytes_sent, "headers": headers,
        "body": exchange.body,
    }  # fmt: skip
