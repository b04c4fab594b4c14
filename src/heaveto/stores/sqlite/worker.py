"""A thread that works through operations in order, and hands all results of a batch over in one go."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

MAX_BATCH = 1000


class Operation:
    """One thing to do for a caller who waits for `future`.

    `durable` asks for an fsync. `undo` is called on the loop with the value if the caller was cancelled after it was
    done, for effects that only the caller could end. `is_last` ends the thread.
    """

    __slots__ = ("durable", "error", "future", "is_last", "undo", "value", "work")

    def __init__(
        self,
        work: Callable[[Any], Any],
        future: asyncio.Future[Any],
        *,
        durable: bool = False,
        undo: Callable[[Any], None] | None = None,
        is_last: bool = False,
    ) -> None:
        self.work, self.future, self.durable, self.undo, self.is_last = work, future, durable, undo, is_last
        self.value: Any = None
        self.error: BaseException | None = None


class Worker:
    """Base of the writer and the reader: a daemon thread with a queue. Started by the first operation.

    A subclass says how a batch is performed, and how long to wait for the next one. `in_flight` counts the operations
    that were submitted and not yet settled; it belongs to the event loop.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._queue: SimpleQueue[Operation | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self.in_flight = 0

    @property
    def is_started(self) -> bool:
        """Whether there was an operation yet."""
        return self._thread is not None

    @property
    def is_idle(self) -> bool:
        """Whether no operation waits."""
        return self._queue.empty()

    def submit(self, operation: Operation) -> None:
        """Queue an operation. Called on the event loop."""
        self.in_flight += 1
        self._queue.put(operation)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()

    def wake(self) -> None:
        """Make the thread look at how long it should wait."""
        if self._thread is not None:
            self._queue.put(None)

    def perform(self, batch: Sequence[Operation]) -> None:
        """Do the operations; leave a value or an error in each. Must not raise."""
        raise NotImplementedError

    def close(self) -> None:
        """Let go of what the thread holds; its last act."""
        raise NotImplementedError

    def patience(self) -> float | None:
        """Return how long to wait for an operation before `idle` is called; None waits for ever."""
        return None

    def idle(self) -> None:
        """Called in the thread when there was nothing to do for so long."""

    def after(self, batch: Sequence[Operation]) -> None:
        """Called in the thread after a batch was performed; delivers it."""
        deliver(batch, self.settle)

    def settle(self, batch: Sequence[Operation]) -> None:
        """Called on the event loop: resolve the futures."""
        self.in_flight -= len(batch)
        for operation in batch:
            future = operation.future
            if future.cancelled():
                if operation.undo is not None and operation.error is None and operation.value is not None:
                    operation.undo(operation.value)
            elif operation.error is not None:
                future.set_exception(operation.error)
            else:
                future.set_result(operation.value)

    def _run(self) -> None:
        is_open = True
        while is_open:
            batch = self._take()
            if batch is None:
                self.idle()
                continue
            is_open = not any(operation.is_last for operation in batch)
            if batch:
                self.perform(batch)
            if not is_open:
                self.close()
            if batch:
                self.after(batch)

    def _take(self) -> list[Operation] | None:
        """Wait for an operation and return it with all that wait behind it; None if there came none in time."""
        queue = self._queue
        try:
            first = queue.get(timeout=self.patience())
        except Empty:
            return None
        batch = [first] if first is not None else []
        while len(batch) < MAX_BATCH and not queue.empty():  # nobody else takes from it
            following = queue.get_nowait()
            if following is not None:
                batch.append(following)
        return batch


def deliver(batch: Iterable[Operation], settle: Callable[[Sequence[Operation]], None]) -> None:
    """Resolve the futures on their event loop; a loop that was closed meanwhile has nobody waiting."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Operation]] = {}
    for operation in batch:
        by_loop.setdefault(operation.future.get_loop(), []).append(operation)
    for loop, operations in by_loop.items():
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, operations)
