"""The command ``heaveto run``: chat with an agent in the terminal.

The runner lives on a thread of its own, so that late results are recorded and leases are kept while the user types. The
main thread shows, asks, and takes Ctrl-C: its handler asks for the stop at once, whatever the run is doing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import click

from heaveto.cli.exits import INTERRUPTED, OK
from heaveto.cli.reading import store_option
from heaveto.cli.talk import Talk
from heaveto.cli.target import load_app
from heaveto.errors import HeavetoError

_PROMPT = "> "


@click.command("run")
@click.argument("target", metavar="FILE:APP")
@click.option("--session", default="cli", show_default=True, help="The session to go on with, or to begin.")
@store_option
@click.option("--user", default="local", show_default=True, help="Whose session.")
@click.option("--message", "-m", help="Say this, show the answer, and leave. '-' reads it from stdin.")
@click.option("--json", "as_json", is_flag=True, help="Print the run's records, one JSON object per line.")
def command(target: str, session: str, store: Path, user: str, message: str | None, as_json: bool) -> None:
    """Chat with an agent in a Python file or module.

    FILE:APP names an App or an agent, such as shop.py:app or package.module:agent. Ctrl-C stops the run, and shows
    what became of its work; twice, it leaves at once. Without a terminal, all of stdin is the message.
    """
    app = load_app(target)
    if message == "-" or (message is None and not sys.stdin.isatty()):
        message = sys.stdin.read()
    with Talk(app, store, user=user, session=session, as_json=as_json) as talk:
        code = talk.turn(message) if message is not None else _chat(talk)
    sys.exit(code)


def _chat(talk: Talk) -> int:
    """Ask and answer until the user leaves: Ctrl-D, or Ctrl-C at the prompt."""
    click.echo(f"{talk.title}; Ctrl-C stops a run, Ctrl-D leaves", err=True)
    with suppress(ImportError):
        import_module("readline")  # gives `input` line editing and history
    try:
        for text in _lines():
            _take_turn(talk, text)
    except KeyboardInterrupt:
        click.echo(err=True)
        return INTERRUPTED
    click.echo(err=True)
    return OK


def _take_turn(talk: Talk, text: str) -> None:
    try:
        talk.turn(text)
    except HeavetoError as error:  # the chat goes on: the next message may fare better
        click.echo(click.style(f"{error.code}: {error}", fg="red"), err=True)


def _lines() -> Iterator[str]:
    while True:
        try:
            text = input(_PROMPT)
        except EOFError:
            return
        if text.strip():
            yield text
