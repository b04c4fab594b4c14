"""A model that plays a script: deterministic, without latency, and strict about what it is asked.

model = ScriptedModel(call("refund", order=7), say("Done."))
...
model.assert_done()
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from heaveto.clock import Clock, SystemClock
from heaveto.core.request import ModelProfile, ModelRequest
from heaveto.models.base import Chunk, Model
from heaveto.testing.script import Action, Cut, Delay, Fault, Gate, Hang, Script, Step


class ScriptedModel(Model):
    """Answers each request with the next step of its script (see `heaveto.testing.script` for the vocabulary).

    Args:
        steps: one per model call.
        strict: asking beyond the script is an AssertionError; if false, the last step is repeated for ever.
        check: hold each request against the rules of every provider; a breach is an AssertionError (P1). Costs the
            whole history per request.
        keep_requests: keep the requests in `requests`.
        clock: what `delay` waits on.

    Attributes:
        requests: the requests so far, in order.
        active: how many streams are open; `closed` counts those that ended, in whatever way.
    """

    def __init__(
        self,
        *steps: Step,
        strict: bool = True,
        check: bool = True,
        keep_requests: bool = True,
        clock: Clock | None = None,
        name: str = "scripted",
        profile: ModelProfile | None = None,
    ) -> None:
        self.name = name
        self.profile = profile or ModelProfile(name="scripted")
        self.requests: list[ModelRequest] = []
        self.active = self.closed = 0
        self._script = Script(steps, strict=strict)
        self._check, self._keep_requests = check, keep_requests
        self._clock = clock or SystemClock()
        self._breaches: list[str] = []

    @property
    def calls(self) -> int:
        """How many answers were asked for."""
        return self._script.played

    async def generate(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        """Play the next step.

        Raises:
            AssertionError: the script is at its end, or the request breaks a provider's rule.
            ModelError: the step says so.
        """
        actions = self._accept(request)
        self.active += 1
        try:
            for action in actions:
                match action:
                    case Cut() if action.counts_bytes:
                        raise ValueError("a scripted model sends no bytes: use cut(after_chunks=…), or an emulator")
                    case Cut():
                        return
                    case Delay() | Gate() | Hang() | Fault():
                        await self._hold(action)
                    case _:
                        yield action
        finally:
            self.active -= 1
            self.closed += 1

    def assert_done(self) -> None:
        """Raise AssertionError if steps are left over, or if a request was refused and the run went on regardless."""
        if self._breaches:
            raise AssertionError(self._breaches[0])
        left = self._script.left
        if left:
            steps = "\n".join(f"  {self.calls + place}. {step!r}" for place, step in enumerate(left, 1))
            raise AssertionError(
                f"{self.name}: {len(left)} of {self.calls + len(left)} steps were not asked for:\n{steps}"
            )

    def _accept(self, request: ModelRequest) -> list[Action]:
        if self._keep_requests:
            self.requests.append(request)
        if self._check:
            self._check_request(request)
        actions = self._script.next_actions(request)
        if actions is None:
            self._refuse(f"{self.name}: the script has only {self.calls} steps; it was asked again: {_said(request)}")
        return actions or []

    def _check_request(self, request: ModelRequest) -> None:
        from heaveto.testing.request_check import find_breach

        breach = find_breach(request)
        if breach is not None:
            self._refuse(f"{self.name}: request {self.calls + 1} {breach}; {_said(request)}")

    def _refuse(self, message: str) -> None:
        self._breaches.append(message)
        raise AssertionError(message)

    async def _hold(self, action: Delay | Gate | Hang | Fault) -> None:
        match action:
            case Delay(seconds=seconds):
                await self._clock.sleep(seconds)
            case Gate():
                await action.passed()
            case Hang():
                await asyncio.Event().wait()
            case Fault(error=error):
                raise error


def _said(request: ModelRequest) -> str:
    who = f"agent {request.agent!r}" if request.agent else "an agent"
    last = request.turns[-1] if request.turns else None
    return f"{who} sent {len(request.turns)} turns, the last of them {last!r}"
