"""The parent's side of a call in a worker process."""

from __future__ import annotations

import asyncio
import logging
import pickle
from collections import deque
from contextlib import suppress
from typing import Any, NoReturn

from heaveto.errors import RunCancelled, WorkerDiedError
from heaveto.events.contents import Json
from heaveto.events.records import Cause
from heaveto.tools.base import ToolContext
from heaveto.tools.process import pool
from heaveto.tools.process.pool import WorkerProcess
from heaveto.tools.process.reference import Reference
from heaveto.tools.process.remote_error import described, restored
from heaveto.tools.process.wire import LENGTH, Call, Message, frame, pack, unpack
from heaveto.tools.threads import in_thread, wait_through_cancels

logger = logging.getLogger("heaveto")

_CHUNK_BYTES = 256 * 1024
_LARGE_BYTES = 1024 * 1024
"""Larger values are unpickled in a thread: the event loop must not stand still for them."""
_DYING_SECONDS = 1.0


async def call_in_process(
    tool: str, where: Reference, args: dict[str, Any], ctx: ToolContext, *, context: str | None, stoppable: bool
) -> Any:
    """Call a function in a worker and return its result; `context` names the parameter that takes the context.

    Cancelling it ends the worker and all that the function has started: TERM, half a second, KILL. It ends only when
    they are dead, however often it is cancelled meanwhile.

    Raises:
        Exception: what the function raised, or a `RemoteError` with the name of its type, with the worker's traceback.
        NotTransportableError: an argument or the result cannot be sent.
        WorkerDiedError: the worker died by itself.
        RunCancelled: a stop was asked for before it began, or the function ended itself because of it.
    """
    ctx.raise_if_cancelled()
    call = Call(tool, where, pack(args, "the arguments"), context, stoppable, _facts(ctx))
    conversation = _Conversation(pool.take(), ctx)
    try:
        outcome = await conversation.hold(call)
    except _WorkerGone:
        code = await conversation.abort()
        raise WorkerDiedError(_told(code)) from None
    except BaseException:
        await conversation.abort()
        raise
    await conversation.release()
    return await _concluded(outcome, ctx)


def _facts(ctx: ToolContext) -> dict[str, Any]:
    return {
        "call_id": ctx.call_id, "idempotency_key": ctx.idempotency_key, "attempt": ctx.attempt, "agent": ctx.agent,
        "branch": ctx.branch, "run_id": ctx.run_id, "session": ctx.session, "last_progress": ctx.last_progress,
    }  # fmt: skip


def _told(code: int | None) -> str:
    if code is None:
        return "it hangs in the kernel"
    return f"exit code {code}" if code >= 0 else f"signal {-code}"


def cause_of_stop(ctx: ToolContext) -> Cause | None:
    """Return why the call was asked to stop, or None if it was not."""
    try:
        ctx.raise_if_cancelled()
    except RunCancelled as stop:
        return stop.cause  # pyright: ignore[reportReturnType] - inferred from a tuple as str
    return None


async def _concluded(outcome: Message, ctx: ToolContext) -> Any:
    kind, packed, (ctx.end_turn, ctx.escalate, ctx.transfer_to_agent) = outcome
    if kind == "cancelled":
        raise RunCancelled(ctx.run_id, cause_of_stop(ctx) or "user")
    what = f"the {kind}"
    if len(packed) > _LARGE_BYTES:
        value = await asyncio.wrap_future(in_thread(lambda: unpack(packed, what), name="heaveto unpickling"))
    else:
        value = unpack(packed, what)
    if kind == "error":
        raise restored(*value)
    return value


class _WorkerGone(Exception):  # noqa: N818 - a fact, found out by reading
    """The worker has ended, or its end of the socket is closed."""


class _Conversation:
    """One call on one worker, on this event loop. Nothing here waits while the worker is told something."""

    def __init__(self, worker: WorkerProcess, ctx: ToolContext) -> None:
        self._worker, self._ctx = worker, ctx
        worker.calls += 1
        self._number = worker.calls
        self._loop = asyncio.get_running_loop()
        self._outgoing: deque[memoryview] = deque()
        self._incoming = _Frames()
        self._requests: deque[Message] = deque()
        self._outcome: Message | None = None
        self._failure: BaseException | None = None
        self._wake = asyncio.Event()
        self._is_closed = False
        self._loop.add_reader(worker.socket, self._read)
        self._unwatch = worker.group.watch_exit(self._worker_exited)

    async def hold(self, call: Call) -> Message:
        """Have the worker execute the call, do what it asks for meanwhile, and return the outcome that it tells.

        Raises:
            _WorkerGone: there will be none.
        """
        self._post(("call", self._number, call))
        self._ctx.on_cancel(self._pass_stop_on)
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._requests:
                await self._answer(self._requests.popleft())
            if self._failure is not None:
                raise self._failure
            if self._outcome is not None:
                return self._outcome

    async def abort(self) -> int | None:
        """End the worker; return its exit code. What it still tells of its output is taken."""
        if isinstance(self._failure, _WorkerGone):
            await self._see_it_die()
        ending = self._worker.group.start_ending()
        interrupted = await wait_through_cancels(ending)
        self._close()
        self._worker.socket.close()
        for survivor in ending.result().survivors:
            logger.warning("%s (process %d) of a tool could not be ended", survivor.name, survivor.pid)
        if interrupted:
            raise asyncio.CancelledError
        return self._worker.group.process.returncode

    async def _see_it_die(self) -> None:
        """Let a worker that has closed its socket end by itself, so that its exit code is its own."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_DYING_SECONDS):
                await self._worker.group.exited()

    async def release(self) -> None:
        """Give the worker back, or end it where it is not needed."""
        is_clean = not self._outgoing
        self._close()
        if not (is_clean and pool.give_back(self._worker)):
            await self.abort()

    def _close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._loop.remove_reader(self._worker.socket)
            self._loop.remove_writer(self._worker.socket)
            self._unwatch()

    # --- what the worker tells ------------------------------------------------------------------------------------

    def _read(self) -> None:
        try:
            for message in self._incoming.read(self._worker):
                self._take(message)
        except (OSError, MemoryError, _WorkerGone):
            self._fail(_WorkerGone())

    def _take(self, message: Message) -> None:
        match message:
            case ("output", bytes() as packed):
                self._put_out(packed)
            case ("request", *_):
                self._requests.append(message)
                self._wake.set()
            case _:
                self._outcome = message
                self._wake.set()

    def _put_out(self, packed: bytes) -> None:
        try:
            piece: Json = unpack(packed, "a piece of output")
            self._ctx.output(piece)
        except (Exception, RunCancelled) as error:  # noqa: BLE001 - raised where the call is waited for
            self._fail(error)

    def _worker_exited(self) -> None:
        self._unwatch()
        self._unwatch = _nothing
        self._read_rest()
        if self._outcome is None:
            self._fail(_WorkerGone())

    def _read_rest(self) -> None:
        """Take what it told before its end; what it started may hold the socket open, so that no end would come."""
        while self._failure is None and self._outcome is None:
            before = self._incoming.total
            self._read()
            if self._incoming.total == before:
                return

    def _fail(self, error: BaseException) -> None:
        self._loop.remove_reader(self._worker.socket)
        if self._failure is None and self._outcome is None:
            self._failure = error
        self._wake.set()

    # --- what it asks for -----------------------------------------------------------------------------------------

    async def _answer(self, request: Message) -> None:
        _, number, method, packed = request
        try:
            answer = (True, pack(await self._do(method, *unpack(packed, "a request")), f"what {method} gives"))
        except (Exception, RunCancelled) as error:  # noqa: BLE001 - raised in the worker
            answer = (False, pack(described(error), "the error"))
        self._post(("reply", self._number, number, *answer))

    async def _do(self, method: str, *args: Any) -> Any:
        ctx = self._ctx
        match method, args:
            case "state_get", (key,):
                return ctx.state[key]
            case "state_set", (key, value):
                ctx.state[key] = value
            case "state_del", (key,):
                del ctx.state[key]
            case "state_keys", ():
                return list(ctx.state)
            case "progress", (value,):
                await ctx.progress(value)
            case "ask", (hint, schema):
                return await ctx.ask(hint, schema)
            case "detach", (response,):
                await ctx.detach(response)
            case "request_confirmation", (hint, payload, within):
                ctx.request_confirmation(hint, payload=payload, within_seconds=within)
            case "save_artifact", (name, content):
                return await ctx.save_artifact(name, content)
            case "load_artifact", (name, version):
                return await ctx.load_artifact(name, version)
            case "list_artifacts", ():
                return await ctx.list_artifacts()
            case "cancel_run", (by, reason):
                await ctx.cancel_run(by=by, reason=reason)
            case _:
                _refuse(method)
        return None

    # --- what it is told ------------------------------------------------------------------------------------------

    def _pass_stop_on(self) -> None:
        if not self._is_closed:
            self._post(("stop", self._number, cause_of_stop(self._ctx) or "user"))

    def _post(self, message: Message) -> None:
        self._outgoing.append(memoryview(frame(message)))
        self._write()

    def _write(self) -> None:
        try:
            while self._outgoing:
                sent = self._worker.socket.send(self._outgoing[0])
                self._outgoing[0] = self._outgoing[0][sent:]
                if not self._outgoing[0]:
                    self._outgoing.popleft()
        except BlockingIOError:
            self._loop.add_writer(self._worker.socket, self._write)
            return
        except OSError:  # the worker has died: who reads finds out
            self._outgoing.clear()
        self._loop.remove_writer(self._worker.socket)


def _nothing() -> None:
    pass


def _refuse(method: str) -> NoReturn:
    raise RuntimeError(f"{method} is not there in a worker process")


class _Frames:
    """Cuts what comes through a socket into messages."""

    def __init__(self) -> None:
        self.total = 0
        self._filled = 0
        self._is_body = False
        self._buffer = bytearray(LENGTH.size)

    def read(self, worker: WorkerProcess) -> list[Message]:
        """Return the messages that are complete with what can be read now; once, and no more than a chunk of it.

        Raises:
            _WorkerGone: the socket is closed at the other end.
        """
        messages: list[Message] = []
        while True:
            end = min(len(self._buffer), self._filled + _CHUNK_BYTES)
            try:
                count = worker.socket.recv_into(memoryview(self._buffer)[self._filled : end])
            except BlockingIOError:
                return messages
            if not count:
                if messages:
                    return messages  # the end is seen again by the next look
                raise _WorkerGone
            self.total += count
            self._filled += count
            if self._filled < len(self._buffer):
                return messages
            message = self._completed()
            if message is not None:
                messages.append(message)

    def _completed(self) -> Message | None:
        done, self._filled = self._buffer, 0
        if self._is_body:
            self._is_body, self._buffer = False, bytearray(LENGTH.size)
            message: Message = pickle.loads(done)
            return message
        self._is_body, self._buffer = True, bytearray(LENGTH.unpack(done)[0])
        return None
