"""The worker's side: a process that calls functions, one after another, and ends with its parent.

The main thread calls; a second thread listens, so that a stop and the parent's death are noticed while a function
works. TERM raises `RunCancelled` in the function, once, so that it can clean up; KILL follows. What the function
prints goes where the parent's prints go.
"""

from __future__ import annotations

import itertools
import os
import pickle
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

from heaveto.errors import NotTransportableError, RunCancelled
from heaveto.events.contents import ArtifactInfo, Blob, Json
from heaveto.events.records import Cause
from heaveto.tools.base import Reply, ToolContext
from heaveto.tools.generators import result_of
from heaveto.tools.process.remote_error import described, restored
from heaveto.tools.process.wire import LENGTH, Call, Message, frame, pack, unpack
from heaveto.tools.process_table import find_members

_LOOK_FOR_PARENT_SECONDS = 2.0
"""A process that the parent has forked may hold the socket open; so the parent is looked for as well."""
_EXIT_SECONDS = 1.0


class ParentGone(Exception):  # noqa: N818 - a fact, not an error
    """The other end of the socket is closed."""


class Link:
    """Messages over the socket; sending is safe from any thread."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._lock = threading.Lock()
        self._is_torn = False
        self._parent, self._own_pid = os.getppid(), os.getpid()

    def send(self, message: Message, *, allowed: Callable[[], bool]) -> bool:
        """Send a message, if it is allowed when its turn comes; return whether it was."""
        data = frame(message)
        with self._lock:
            # A process that the function has forked is not heard; nor is anything behind half a message.
            if self._is_torn or not allowed() or os.getpid() != self._own_pid:
                return False
            self._is_torn = True
            with suppress(OSError):  # the parent is gone: whoever listens finds out
                self._end.sendall(data)  # the stop's signal may interrupt it
            self._is_torn = False
            return True

    def receive(self) -> Message:
        """Wait for a message.

        Raises:
            ParentGone: none will come any more.
        """
        while not select.select([self._end], [], [], _LOOK_FOR_PARENT_SECONDS)[0]:
            if os.getppid() != self._parent:
                raise ParentGone
        (length,) = LENGTH.unpack(self._exactly(LENGTH.size))
        message: Message = pickle.loads(self._exactly(length))
        return message

    def _exactly(self, count: int) -> bytearray:
        data = bytearray(count)
        view, filled = memoryview(data), 0
        while filled < count:
            try:
                new = self._end.recv_into(view[filled:])
            except OSError:
                new = 0
            if not new:
                raise ParentGone
            filled += new
        return data


class RemoteHost:
    """What is behind the context of a call in a worker: it asks the parent. Implements `CallHost`.

    The coroutines block while they wait, as the function that awaits them does by itself.
    """

    def __init__(self, link: Link, run_id: str) -> None:
        self._link, self.run_id = link, run_id
        self._lock = threading.Lock()
        self._hooks: list[Callable[[], None]] = []
        self._waiting: dict[int, SimpleQueue[tuple[bool, bytes]]] = {}
        self._numbers = itertools.count()
        self._ended = False
        self.cancelled: Cause | None = None

    def stop(self, cause: Cause) -> None:
        with self._lock:
            self.cancelled = self.cancelled or cause
            hooks, self._hooks = self._hooks, []
        for hook in hooks:
            with suppress(Exception):
                hook()

    def on_cancel(self, hook: Callable[[], None]) -> None:
        with self._lock:
            if self.cancelled is None:
                self._hooks.append(hook)
                return
        hook()

    def output(self, piece: Json) -> None:
        self._send(("output", pack(piece, "a piece of output")))

    async def progress(self, value: Json) -> None:
        self.request("progress", value)

    def progress_from_thread(self, value: Json) -> None:
        self.request("progress", value)

    async def ask(self, hint: str, schema: dict[str, Json] | None) -> Reply:
        reply: Reply = self.request("ask", hint, schema)
        return reply

    async def detach(self, response: dict[str, Json] | None) -> None:
        self.request("detach", response)

    async def save_artifact(self, name: str, content: Blob) -> int:
        version: int = self.request("save_artifact", name, content)
        return version

    async def load_artifact(self, name: str, version: int | None) -> Blob | None:
        blob: Blob | None = self.request("load_artifact", name, version)
        return blob

    async def list_artifacts(self) -> list[ArtifactInfo]:
        artifacts: list[ArtifactInfo] = self.request("list_artifacts")
        return artifacts

    async def cancel_run(self, by: str, reason: str) -> None:
        self.request("cancel_run", by, reason)

    def request_confirmation(self, hint: str, payload: Json, within_seconds: float | None) -> None:
        self.request("request_confirmation", hint, payload, within_seconds)

    async def run_agent(self, agent: Any, task: str) -> str:
        raise NotTransportableError("an agent", "run_agent works in the program's own process only")

    async def run_in_background(self, agent: Any, task: str) -> None:
        raise NotTransportableError("an agent", "run_in_background works in the program's own process only")

    def request(self, method: str, *args: Any) -> Any:
        """Have the parent do something, and wait for what comes of it."""
        number, answer = next(self._numbers), SimpleQueue[tuple[bool, bytes]]()
        self._waiting[number] = answer
        self._send(("request", number, method, pack(args, f"what was given to {method}")))
        done, packed = answer.get()
        value = unpack(packed, f"what {method} gave")
        if not done:
            raise restored(*value)
        return value

    def answered(self, number: int, done: bool, packed: bytes) -> None:
        waiting = self._waiting.pop(number, None)
        if waiting is not None:
            waiting.put((done, packed))

    def _send(self, message: Message) -> None:
        if not self._link.send(message, allowed=lambda: not self._ended):
            raise RunCancelled(self.run_id, self.cancelled or "lease_lost")

    def end_with(self, outcome: Message) -> None:
        """Send the call's outcome; nothing of this call follows it, whatever threads the function left."""

        def last() -> bool:
            self._ended = True
            return True

        self._link.send(outcome, allowed=last)


class RemoteState(MutableMapping[str, Json]):
    """The session's state, as it is in the parent: each access asks there."""

    def __init__(self, host: RemoteHost) -> None:
        self._host = host

    def __getitem__(self, key: str) -> Json:
        value: Json = self._host.request("state_get", key)
        return value

    def __setitem__(self, key: str, value: Json) -> None:
        self._host.request("state_set", key, value)

    def __delitem__(self, key: str) -> None:
        self._host.request("state_del", key)

    def __iter__(self) -> Iterator[str]:
        keys: list[str] = self._host.request("state_keys")
        return iter(keys)

    def __len__(self) -> int:
        return len(list(iter(self)))


class Worker:
    """The process: its calls, one after another."""

    def __init__(self, link: Link, marker: str) -> None:
        self._link, self._marker = link, marker
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        self._number = -1
        self._host: RemoteHost | None = None
        self._in_function = False
        self._told_to_end = False
        self._busy = False

    def work(self) -> None:
        """Execute calls until the parent goes."""
        signal.signal(signal.SIGTERM, self._on_term)
        threading.Thread(target=self._listen, name="heaveto worker", daemon=True).start()
        while (call := self._calls.get()) is not None:
            self._execute(call)
            self._busy = False

    def _execute(self, call: Call) -> None:
        host = self._host
        assert host is not None
        ctx = _context(call, host)
        outcome = self._outcome(call, ctx)
        if self._told_to_end:
            _leave()
        host.end_with((*outcome, (ctx.end_turn, ctx.escalate, ctx.transfer_to_agent)))

    def _outcome(self, call: Call, ctx: ToolContext) -> Message:
        try:
            return ("result", pack(self._result(call, ctx), "the result"))
        except RunCancelled:
            return ("cancelled", b"")
        except BaseException as error:  # noqa: BLE001 - an edge: the function's own code; told to the parent
            self._in_function = False
            return ("error", pack(described(error), "the error"))

    def _result(self, call: Call, ctx: ToolContext) -> Any:
        func = call.where.resolve()
        args: dict[str, Any] = unpack(call.args, "the arguments")
        if call.context is not None:
            args[call.context] = ctx
        self._in_function = True
        try:
            return result_of(call.tool, func(**args), ctx, stoppable=call.stoppable)
        finally:
            self._in_function = False

    def _on_term(self, _number: int, _frame: object) -> None:
        host = self._host
        if self._told_to_end:
            return
        self._told_to_end = True
        if host is None or not self._in_function:
            _leave()
        else:
            raise RunCancelled(host.run_id, host.cancelled or "user")

    # --- the second thread ----------------------------------------------------------------------------------------

    def _listen(self) -> None:
        try:
            while True:
                self._take(self._link.receive())
        finally:  # ParentGone, or a fault: without ears it is of no use
            self._end()

    def _take(self, message: Message) -> None:
        match message:
            case ("call", int() as number, Call() as call):
                self._number, self._busy = number, True
                self._host = RemoteHost(self._link, call.facts["run_id"])
                self._calls.put(call)
            case ("stop", self._number, cause) if self._host is not None:
                self._host.stop(cause)
            case ("reply", self._number, request, done, packed) if self._host is not None:
                self._host.answered(request, done, packed)
            case _:
                pass  # for a call that has ended

    def _end(self) -> None:
        """The parent is gone: end, with all that functions have started; at once if one still works."""
        end = time.monotonic() + _EXIT_SECONDS
        while (members := find_members(os.getpid(), self._marker)) and time.monotonic() < end:
            for member in members:  # again and again: one that is just being started is not in the table yet
                with suppress(OSError):
                    os.kill(member.pid, signal.SIGKILL)
        if not self._busy:
            self._calls.put(None)
            time.sleep(_EXIT_SECONDS)
        os.killpg(os.getpid(), signal.SIGKILL)


def _context(call: Call, host: RemoteHost) -> ToolContext:
    return ToolContext(host=host, state=RemoteState(host), **call.facts)


def _leave() -> None:
    with suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(128 + signal.SIGTERM)


def main(fd: int, marker: str) -> None:
    """Work for the process at the other end of the socket."""
    os.set_inheritable(fd, False)
    try:
        Worker(Link(socket.socket(fileno=fd)), marker).work()
    except RunCancelled:  # TERM came between two steps
        _leave()
