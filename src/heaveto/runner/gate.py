"""Waiting for a slot: the event loop's side of `heaveto.core.gate`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from heaveto.clock import Clock, SystemClock
from heaveto.core.gate import PATIENCE, Admission, CallRef, GateState, SlotRequest


class Gate:
    """Lets calls through, as many at a time as their limits allow; the rules are those of `heaveto.core.gate`.

    Of one process, and used on one event loop. Where a slot is free, nothing is awaited and no future is made.
    """

    def __init__(self, clock: Clock | None = None, *, patience: int = PATIENCE) -> None:
        self._clock: Clock = clock or SystemClock()
        self._admission = Admission(patience=patience)
        self._turns: dict[CallRef, asyncio.Future[None]] = {}

    def enter_at_once(self, request: SlotRequest) -> bool:
        """Take all slots of a call if it may run now, and return whether it may; one that may not does not wait either.

        Raises:
            ValueError: the call is at the gate already.
        """
        if self._admission.enter(request):
            return True
        self.leave(request.ref)
        return False

    async def enter(self, request: SlotRequest) -> None:
        """Return when the call has all its slots. Every `enter` that returns needs a `leave`.

        Safe to cancel, also in the moment in which the slots are given: it then has none, and waits no more.

        Raises:
            ValueError: the call is at the gate already.
        """
        if self._admission.enter(request, self._clock.time()):
            return
        turn = self._turns[request.ref] = asyncio.get_running_loop().create_future()
        try:
            await turn
        except BaseException:
            self._turns.pop(request.ref, None)
            self._wake(self._admission.leave(request.ref))
            raise

    def leave(self, ref: CallRef) -> None:
        """Give back all slots of a call, and let go who can. Never waits; harmless for a call that is not at the gate.

        A call that still waits is turned away: its `enter` is cancelled.
        """
        granted = self._admission.leave(ref)
        turn = self._turns.pop(ref, None)
        if turn is not None:
            turn.cancel()
        self._wake(granted)

    def snapshot(self) -> list[GateState]:
        """Return who has a slot and who waits, for each key that is in use now."""
        return self._admission.snapshot()

    def _wake(self, granted: Iterable[SlotRequest]) -> None:
        for request in granted:
            turn = self._turns.pop(request.ref, None)
            if turn is not None and not turn.done():
                turn.set_result(None)
