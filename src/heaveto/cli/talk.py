"""One conversation in the terminal: turns, and what Ctrl-C does to them."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event
from types import FrameType, TracebackType
from typing import Self

import click

from heaveto.cli.describe import compact_json, parts_in_words, report_in_words
from heaveto.cli.exits import INTERRUPTED, WAITING, exit_code
from heaveto.cli.log import as_line
from heaveto.core.close import report_of
from heaveto.events.contents import calls_of, text_of
from heaveto.events.records import CallSettled, CancelRequested, Delta, Message, Paused, Record, RunEnded, StopReport
from heaveto.runner.application.app import App
from heaveto.runner.facade import Background
from heaveto.runner.handle import StreamItem
from heaveto.runner.runner import Runner
from heaveto.stores.sqlite import SqliteStore

_HURRY_SECONDS = 0.5
_LOOK_SECONDS = 0.05


class Talk:
    """A session of an app, shown in the terminal. A context manager; leaving it closes the runner in order."""

    def __init__(self, app: App, store: Path, *, user: str, session: str, as_json: bool) -> None:
        self.title = f"{app.name}, session {session} in {store}"
        """What is talked to, in words."""
        self._user, self._session, self._as_json = user, session, as_json
        self._background = Background()
        self._runner = Runner(app=app, store=SqliteStore(store))
        self._shown: dict[str, int] = {}
        """By message: how many characters of it were shown while they were streamed."""
        self._is_line_open = False

    def __enter__(self) -> Self:
        try:
            self._background.call(self._open)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    async def _open(self) -> None:
        """Open the store now, so that a wrong one is told of before anything is typed."""
        info = await self._runner.get_session(user_id=self._user, session_id=self._session)
        self.title += " (new)" if info is None else f" ({info.last_seq} records)"

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._background.call(self._runner.aclose)
        self._background.stop()

    def turn(self, text: str) -> int:
        """Say something, show the run live, and return its exit code; that of Ctrl-C if this stopped it.

        Raises:
            HeavetoError: the message was not accepted, or the store gave up.
        """
        turn = _Turn(self._runner, self._user, self._session, text)
        code = INTERRUPTED
        with turn.interruptible():
            work = self._background.submit(turn.follow())
            for item in turn.arriving():
                self._show(item)
                if isinstance(item, RunEnded):
                    code = exit_code(item.outcome)
                elif isinstance(item, Paused) and not item.held:
                    code = WAITING
            work.result()
        return INTERRUPTED if turn.interrupted and code != exit_code("completed") else code

    def _show(self, item: StreamItem) -> None:
        if self._as_json:
            if not isinstance(item, Delta):
                click.echo(as_line(item))
            return
        if isinstance(item, Delta):
            if item.kind == "text":
                self._shown[item.message_id] = self._shown.get(item.message_id, 0) + len(item.text)
                self._say(item.text)
            return
        self._show_record(item)

    def _say(self, text: str) -> None:
        self._is_line_open = self._is_line_open or bool(text)
        click.echo(text, nl=False)

    def _show_record(self, record: Record) -> None:
        match record:
            case Message(author=author) if author != "user":
                self._say(text_of(record.parts)[self._shown.pop(record.id, 0) :])  # what was not streamed
                self._end_text()
                for call in calls_of(record.parts):
                    _progress(f"calls {parts_in_words((call,))}")
            case CallSettled(late=False):
                result = "" if record.response is None else f": {compact_json(record.response)}"
                _progress(f"{record.name} {record.status.replace('_', ' ')}{result}")
            case Paused(held=True):  # what a whole run pauses for has been told like this before
                self._end_text()
                for waiting in record.waiting:
                    _progress(f"waits for an answer to {waiting.name or waiting.kind} ({waiting.call_id})")
            case RunEnded():
                self._end_text()
                _show_ending(record)
            case _:
                pass

    def _end_text(self) -> None:
        if self._is_line_open:
            click.echo()
            self._is_line_open = False


class _Turn:
    """One message and its run: followed on the runner's loop, shown and interrupted from the main thread."""

    def __init__(self, runner: Runner, user: str, session: str, text: str) -> None:
        self._runner, self._user, self._session, self._text = runner, user, session, text
        self._run_id = ""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Task[StopReport] | None = None
        self._stop_is_durable = Event()
        self.interrupted = False
        self.items: SimpleQueue[StreamItem | None] = SimpleQueue()

    async def follow(self) -> None:
        """Carry the message to the end of its run, or to a pause; None ends the items."""
        self._loop = asyncio.get_running_loop()
        try:
            run = await self._runner.start(user_id=self._user, session_id=self._session, new_message=self._text)
            self._run_id = run.run_id
            if self.interrupted:
                self._ask_to_stop()
            async with run.stream() as items:
                async for item in items:
                    if isinstance(item, CancelRequested):
                        self._stop_is_durable.set()
                    self.items.put(item)
            if self._stop is not None:
                await self._stop
        finally:
            self.items.put(None)

    def arriving(self) -> Iterator[StreamItem]:
        """Yield the items as they come, waiting in short pieces.

        A signal that comes just before a wait does not end it; its handler would have to wait for the next item.
        """
        while True:
            try:
                item = self.items.get(timeout=_LOOK_SECONDS)
            except Empty:
                continue
            if item is None:
                return
            yield item

    @contextmanager
    def interruptible(self) -> Generator[None, None, None]:
        """Within it, Ctrl-C asks the run to stop, and a second one leaves at once."""
        before = signal.signal(signal.SIGINT, self._interrupt)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _interrupt(self, _signal: int, _frame: FrameType | None) -> None:
        """Take a Ctrl-C; another one may interrupt this very handler."""
        again, self.interrupted = self.interrupted, True
        if self._loop is not None and self._run_id:
            self._loop.call_soon_threadsafe(self._ask_to_stop)
        # Unbuffered writes, because the main thread may be interrupted in the middle of a buffered one.
        if again:
            self._stop_is_durable.wait(_HURRY_SECONDS)  # so that nobody takes the run for one that merely crashed
            os.write(2, b"\nleaving; whoever next opens the store closes the run\n")
            os._exit(INTERRUPTED)
        os.write(2, b"\nstopping... (Ctrl-C again to leave at once)\n")

    def _ask_to_stop(self) -> None:
        if self._stop is None:
            stop = self._runner.cancel(self._run_id, by=self._user, reason="Ctrl-C")
            self._stop = asyncio.ensure_future(stop)


def _show_ending(ended: RunEnded) -> None:
    """A stop is told as a stop, and only a failure as an error (F134)."""
    if ended.outcome == "completed":
        return
    if ended.error is not None:
        click.echo(click.style(f"failed: {ended.error.type}: {ended.error.message}", fg="red"), err=True)
        return
    report = report_of(ended)
    _progress(f"run stopped ({ended.cause}): {report_in_words(report)}")


def _progress(text: str) -> None:
    click.echo(click.style(f"  {text}", dim=True), err=True)
