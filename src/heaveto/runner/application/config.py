"""How a run is carried out: settings per run, with ADK's names where ADK has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import isfinite
from typing import Literal, TypeAlias, get_args

from heaveto.errors import InputError
from heaveto.events.contents import Json
from heaveto.events.records import Limits

BusyPolicy: TypeAlias = Literal["queue", "reject", "interrupt", "rollback", "merge", "steer"]
"""What becomes of a message that arrives while the session is busy.

queue: it waits for its turn. reject: an error, nothing is written. interrupt: the running run is stopped as
superseded, then it runs. rollback: the same, and the conversation goes on as if that run had not been. merge: it joins
the newest waiting message, one answer for all. steer: it is handed to the running run, at its next step.
"""

ToolExecutionMode: TypeAlias = Literal["NONE", "SEQUENTIAL", "PARALLEL", "PARALLEL_SUBSCRIBE"]
"""How the calls of one model message are executed.

SEQUENTIAL: one after another. PARALLEL, and NONE: coroutines overlap, blocking functions run one after another.
PARALLEL_SUBSCRIBE: blocking functions overlap too, each in a thread.
"""


OnLimit: TypeAlias = Literal["stop", "fail"]

OnCrash: TypeAlias = Literal["resume", "seal"]
"""What becomes of a run whose process died, when its session is next used or `Runner.recover` finds it.

resume: it is continued from its log; calls that were under way are executed again only where their tools allow it.
seal: it is closed as failed.
"""

OnText: TypeAlias = Literal["decline", "keep", "reject"]
"""What a text message does to runs of its session that wait for answers.

decline: it is taken as a no: their waiting calls are denied with the text as the reason, and the runs end. keep: they
go on waiting, beside the new run. reject: an error, nothing is written.
"""

OnCallError: TypeAlias = Literal["isolate", "fail_all"]
"""What the failure of one call means for the others of the same step.

isolate: nothing. fail_all: those that run are stopped, and those that have not begun never do. The results that there
are are kept, and the run goes on.
"""

_CHOICES: dict[str, tuple[str | None, ...]] = {
    "busy_policy": get_args(BusyPolicy),
    "tool_execution_mode": get_args(ToolExecutionMode),
    "on_limit": get_args(OnLimit),
    "on_call_error": get_args(OnCallError),
    "on_text": get_args(OnText),
    "on_crash": (None, *get_args(OnCrash)),
}
_YEAR_2020 = 1_577_836_800.0
_NUMBERS = (
    "max_llm_calls", "max_tokens", "max_cost", "max_seconds", "deadline", "cancel_grace_seconds",
    "straggler_wait_seconds", "model_retries", "retry_backoff_seconds", "max_result_bytes", "max_fruitless_attempts",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """Settings of one run. Times are in seconds; `deadline` is a point in epoch seconds.

    Attributes:
        max_llm_calls: model calls of the run, over all its agents and attempts; None for no limit.
        max_tokens, max_cost, max_seconds: further budgets.
        on_limit: whether a run that used up a budget ends as stopped (cause ``budget``), or fails.
        deadline: when the run is stopped (cause ``deadline``).
        streaming: whether readers get `Delta`s.
        tool_execution_mode: how the calls of one message are executed.
        cancel_grace_seconds: how long a stop waits for work to end before it is called still running.
        busy_policy: what becomes of the message if the session is busy.
        straggler_wait_seconds: how long the run waits at its start for work that an earlier stop left running.
        model_retries: how often a failed model request is repeated, if nothing of the answer was seen yet.
        retry_backoff_seconds: the first pause before a repetition, doubled each time, unless the provider names one.
        on_call_error: what the failure of one tool call means for the others of the same step.
        max_result_bytes: tool results larger than this are stored as artifacts, and the model is told a stub; None for
            no limit.
        on_crash: what becomes of the run if its process dies; None leaves it to the app.
        on_text: what the message does to runs of its session that wait for answers.
        max_fruitless_attempts: how many attempts after crashes may in a row bring nothing before the run is sealed.
    """

    max_llm_calls: int | None = 500
    max_tokens: int | None = None
    max_cost: float | None = None
    max_seconds: float | None = None
    on_limit: OnLimit = "fail"
    deadline: float | None = None
    streaming: bool = True
    tool_execution_mode: ToolExecutionMode = "NONE"
    cancel_grace_seconds: float = 2.0
    busy_policy: BusyPolicy = "queue"
    straggler_wait_seconds: float = 0.0
    model_retries: int = 2
    retry_backoff_seconds: float = 0.5
    on_call_error: OnCallError = "isolate"
    max_result_bytes: int | None = 256 * 1024
    on_crash: OnCrash | None = None
    on_text: OnText = "decline"
    max_fruitless_attempts: int = 3

    def __post_init__(self) -> None:
        for name, allowed in _CHOICES.items():
            value = getattr(self, name)
            if value not in allowed:
                raise InputError(f"RunConfig.{name} must be one of {', '.join(map(str, allowed))}; not {value!r}")
        for name in _NUMBERS:
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
                raise InputError(f"RunConfig.{name} must be a number; not {value!r}")
            if value is not None and not isfinite(value):
                raise InputError(f"RunConfig.{name} must be a finite number, or None where that means no limit")
        for name in ("max_llm_calls", "max_tokens", "max_cost", "max_seconds", "max_result_bytes"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise InputError(f"RunConfig.{name} must be positive, or None for no limit; not {value}")
        for name in ("cancel_grace_seconds", "straggler_wait_seconds", "model_retries", "retry_backoff_seconds",
                     "max_fruitless_attempts"):  # fmt: skip
            value = getattr(self, name)
            if value < 0:
                raise InputError(f"RunConfig.{name} must not be negative; it is {value}")
        if self.deadline is not None and self.deadline < _YEAR_2020:
            raise InputError(
                f"RunConfig.deadline is a point in epoch seconds, and {self.deadline} is long ago; "
                f"to give the run some time from its start, use max_seconds={self.deadline}"
            )

    @classmethod
    def of_settings(cls, settings: Mapping[str, Json]) -> RunConfig:
        """Return the config that `settings` were taken of; what this version does not know or allow is left out.

        Another version may have written them: a waiting message must not be stuck for that.
        """
        return cls(**{name: value for name, value in settings.items() if cls._allows(name, value)})

    @classmethod
    def _allows(cls, name: str, value: Json) -> bool:
        if name not in {field.name for field in fields(cls)}:
            return False
        try:
            cls(**{name: value})
        except InputError:
            return False
        return True

    @property
    def settings(self) -> dict[str, Json]:
        """The settings that differ from the defaults, as they are recorded with a message that waits."""
        return {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if getattr(self, field.name) != field.default
        }

    @property
    def limits(self) -> Limits:
        """The budgets, as they are recorded with the run."""
        return Limits(
            llm_calls=self.max_llm_calls,
            tokens=self.max_tokens,
            cost=self.max_cost,
            seconds=self.max_seconds,
            deadline=self.deadline,
            on_limit=self.on_limit,
        )
