"""What becomes of a call: kind of tool × state of the call × how its run ends. The rows are data.

`test_table` holds them against what happens, and `docs/reference/stopping.md` shows them:

    python -m tests.stopping.table        writes the tables into the page
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from heaveto.core.close import OperationState
from heaveto.events.records import CallStatus, Cause, OutcomeKind

PAGE = Path(__file__).parents[2] / "docs/reference/stopping.md"
_PART = re.compile(r"(<!-- table: (\w+) -->\n)(.*?)\n?(<!-- end -->)", re.DOTALL)
SHORT = 0.005
PATIENT_BACKOFF_SECONDS = 7200.0

Ending: TypeAlias = Literal["cancel", "deadline", "shutdown", "call", "kill", "kill_sealed"]
"""call: the call is stopped alone, and its run goes on."""
Column: TypeAlias = Literal["finished", "running", "queued", "never started"]
State: TypeAlias = Literal["finished", "running", "slot", "lane", "sequential", "proposed"]
"""slot: it waits for a place among the calls that may run at the same time. lane: it is a blocking function, behind
another one. sequential: behind another call of a step whose calls run one after another. proposed: a callback before it
has not answered."""

COLUMNS: dict[Column, tuple[State, ...]] = {
    "finished": ("finished",),
    "running": ("running",),
    "queued": ("slot", "lane"),
    "never started": ("sequential", "proposed"),
}


@dataclass(frozen=True)
class Kind:
    """A kind of tool.

    Attributes:
        title: what the page calls it.
        grace: the grace of its runs: short where the stop is to give up, else so long that a slow machine does not.
        blocking: it waits in the lane of blocking functions.
        out: it works outside this process, and begins when it has put something out.
    """

    title: str
    grace: float = 20.0
    blocking: bool = False
    out: bool = False


_GIVES_UP = 0.25
_NEXT_SOON = 2.0  # the second interruption comes after a quarter of it

KINDS: dict[str, Kind] = {
    "coroutine": Kind("coroutine"),
    "swallows_once": Kind("coroutine that swallows one interruption", _NEXT_SOON),
    "swallows_always": Kind("coroutine that swallows every interruption", _GIVES_UP),
    "returns_value": Kind("coroutine that catches it and returns a value"),
    "finish": Kind("coroutine, `on_cancel=\"finish\"`, done within the grace"),
    "finish_slow": Kind("coroutine, `on_cancel=\"finish\"`, not done by then", _GIVES_UP),
    "abandon": Kind("coroutine, `on_cancel=\"abandon\"`"),
    "async_generator": Kind("async generator"),
    "polite": Kind("blocking, looks at its context", blocking=True),
    "hook": Kind("blocking, its `ctx.on_cancel` hook makes it raise", blocking=True),
    "hook_returns": Kind("blocking, returns a value when told", blocking=True),
    "deaf": Kind("blocking, takes no notice", _GIVES_UP, blocking=True),
    "generator": Kind("generator", blocking=True),
    "process_polite": Kind("`isolation=\"process\"`", out=True),
    "process_deaf": Kind("`isolation=\"process\"`, swallows everything", out=True),
    "command": Kind("`run_command`, its grandchildren ignore TERM", out=True),
    "mcp": Kind("MCP tool, its server takes no notice", out=True),
    "agent": Kind("agent as a tool"),
    "background": Kind("agent in the background"),
    "background_over": Kind("agent in the background, its caller's run completed"),
    "detached": Kind("detached call"),
    "detached_over": Kind("detached call, its run completed"),
    "ask": Kind("waiting in `ctx.ask`"),
    "backoff": Kind("in the pause before another attempt"),
    "slot": Kind("waiting for a place (`max_concurrency`)"),
    "safe": Kind("coroutine, `replay=\"safe\"`"),
    "idempotent": Kind("coroutine, `replay=\"idempotent\"`"),
    "probe": Kind("coroutine, `probe=`, which finds a result"),
    "probe_nothing": Kind("coroutine, `probe=`, which finds no effect"),
    "probe_raises": Kind("coroutine, `probe=`, which cannot tell"),
    "ask_safe": Kind("waiting in `ctx.ask`, `replay=\"safe\"`"),
}  # fmt: skip

ONLY_AFTER_A_CRASH = ("safe", "idempotent", "probe", "probe_nothing", "probe_raises", "ask_safe")


_WORKS_ON = {
    "task": "task works", "thread": "thread works", "processes": "processes work", "server": "server may work",
}  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """What becomes of a call.

    Attributes:
        settled: what is recorded of it, in order, until the run's end or, after a crash, the end of the recovery.
        report: what the stop report says; None where the run went on and completed.
        late: what is recorded when its work ends after all.
        output: what it had put out is kept as its response.
        left: what of it works on although its run has ended.
        attempts: how often it was started.
    """

    settled: tuple[CallStatus, ...]
    report: OperationState | None
    late: CallStatus | None = None
    output: bool = False
    left: Literal["", "task", "thread", "processes", "server"] = ""
    attempts: int = 1

    def __str__(self) -> str:
        settled = " → ".join(f"`{status}`" for status in self.settled)
        words = [f"{settled} / `{self.report}`" if self.report else settled]
        if self.late:
            words.append(f"late: `{self.late}`")
        if self.output:
            words.append("output kept")
        if self.attempts > 1:
            words.append(f"{self.attempts} attempts")
        if self.left:
            words.append(f"**its {_WORKS_ON[self.left]} on**")
        return "; ".join(words)


FINISHED = Cell(("succeeded",), "finished")
NOT_STARTED = Cell(("not_started",), "not_started", attempts=0)
STOPPED = Cell(("cancelled",), "stopped")
STOPPED_WITH_OUTPUT = replace(STOPPED, output=True)
STRAGGLER = Cell(("unknown",), "still_running", late="succeeded", left="task")
CALLED_OFF = Cell(("detached", "cancelled"), "stopped")
TOLD_LATE = Cell(("detached", "succeeded"), "finished")

STOPPED_WHILE_RUNNING: dict[str, Cell] = {
    "coroutine": STOPPED,
    "swallows_once": STOPPED,
    "swallows_always": replace(STRAGGLER, late="cancelled"),
    "returns_value": STOPPED,
    "finish": FINISHED,
    "finish_slow": STRAGGLER,
    "abandon": STRAGGLER,
    "async_generator": STOPPED_WITH_OUTPUT,
    "polite": STOPPED,
    "hook": STOPPED,
    "hook_returns": FINISHED,
    "deaf": replace(STRAGGLER, left="thread"),
    "generator": STOPPED_WITH_OUTPUT,
    "process_polite": STOPPED_WITH_OUTPUT,
    "process_deaf": STOPPED_WITH_OUTPUT,
    "command": STOPPED_WITH_OUTPUT,
    "mcp": Cell(("unknown",), "unknown", late="succeeded", output=True, left="server"),
    "agent": STOPPED,
    "background": CALLED_OFF,
    "background_over": CALLED_OFF,
    "detached": CALLED_OFF,
    "detached_over": CALLED_OFF,
    "ask": STOPPED,
    "backoff": Cell(("failed",), "finished"),
}

LOST = Cell(("unknown",), None)
LOST_WITH_OUTPUT = replace(LOST, output=True)
LOST_LATER = Cell(("detached", "unknown"), None)
GONE_ON = Cell(("succeeded",), None)
GONE_ON_LATER = Cell(("detached", "succeeded"), None)
REPEATED = Cell(("succeeded",), None, attempts=2)

KILLED_WHILE_RUNNING: dict[str, Cell] = {
    **dict.fromkeys(STOPPED_WHILE_RUNNING, LOST),
    "safe": REPEATED,
    "idempotent": REPEATED,
    "probe": GONE_ON,
    "probe_nothing": REPEATED,
    "probe_raises": LOST,
    "agent": REPEATED,
    "background": GONE_ON_LATER,
    "background_over": GONE_ON_LATER,
    "detached": LOST_LATER,
    "detached_over": LOST_LATER,
    "ask_safe": REPEATED,
    "backoff": REPEATED,
    "async_generator": LOST_WITH_OUTPUT,
    "generator": LOST_WITH_OUTPUT,
    "process_polite": LOST_WITH_OUTPUT,
    "process_deaf": LOST_WITH_OUTPUT,
    "mcp": LOST_WITH_OUTPUT,
    "command": replace(LOST_WITH_OUTPUT, left="processes"),
}

SEALED_WHILE_RUNNING = Cell(("unknown",), "unknown")

# --- what makes no sense ------------------------------------------------------------------------------------------

_NO_PLACE = "with a place it is a coroutine like any other"
_OVER = "the call was answered, so that its run could complete"
_PAUSE = "in the pause it has begun and has not finished"
_NO_REPLAY = "a replay policy matters after a crash only"
_NO_DEADLINE = "the run is over, and its deadline with it"
_SETTLED = "it is settled: there is nothing left to stop"
_ALONE_ANYWAY = "as where its run has completed"
_SAME_AS_COROUTINE = 'as with `on_crash="resume"`, but that nothing is begun: shown for one kind'


def excluded(kind: str, column: Column, ending: Ending) -> str:
    """Return why a combination makes no sense, or is that of another row; empty if it has a row of its own."""
    reasons = {
        _NO_REPLAY: kind in ONLY_AFTER_A_CRASH and not ending.startswith("kill"),
        _SAME_AS_COROUTINE: ending == "kill_sealed" and kind != "coroutine",
        _NO_DEADLINE: kind.endswith("_over") and ending == "deadline",
        _SETTLED: column == "finished" and ending == "call",
        _ALONE_ANYWAY: column == "running" and kind in ("background", "detached") and ending == "call",
        _NO_PLACE: kind == "slot" and column in ("finished", "running"),
        _OVER: kind.endswith("_over") and column != "running",
        _PAUSE: kind == "backoff" and column == "finished",
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def expected(kind: str, column: Column, ending: Ending) -> Cell:
    """Return what becomes of a call."""
    match ending:
        case "cancel" | "deadline":
            return _after_a_stop(kind, column)
        case "shutdown":
            return _after_a_shutdown(kind, column)
        case "call":
            return replace(_after_a_stop(kind, column), report=None)
        case "kill":
            return _after_a_kill(kind, column)
        case "kill_sealed":
            cells: dict[Column, Cell] = {"finished": FINISHED, "running": SEALED_WHILE_RUNNING}
            return cells.get(column, NOT_STARTED)


def _after_a_stop(kind: str, column: Column) -> Cell:
    if column == "running":
        return STOPPED_WHILE_RUNNING[kind]
    if column == "finished":
        return TOLD_LATE if kind in ("background", "detached") else FINISHED
    return NOT_STARTED


def _after_a_shutdown(kind: str, column: Column) -> Cell:
    """The store is closed, so that no late result is recorded; nor does anyone get a report behind a completed run."""
    cell = replace(_after_a_stop(kind, column), late=None)
    if cell.left == "server":
        return replace(cell, left="")  # it is closed with the runner
    return replace(cell, report="still_running") if kind.endswith("_over") else cell


def _after_a_kill(kind: str, column: Column) -> Cell:
    if column == "running":
        return KILLED_WHILE_RUNNING[kind]
    return GONE_ON_LATER if kind in ("background", "detached") else GONE_ON


# --- rows ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One call in one state, and one ending."""

    kind: str
    state: State
    ending: Ending
    cell: Cell

    @property
    def id(self) -> str:
        return f"{self.kind}-{self.state}"


def rows(ending: Ending) -> list[Row]:
    """Return the rows of an ending: the whole product, but for what is excluded with a reason."""
    return [
        Row(kind, state, ending, expected(kind, column, ending))
        for kind in KINDS
        for column in COLUMNS
        if not excluded(kind, column, ending)
        for state in COLUMNS[column]
        if state != "lane" or KINDS[kind].blocking
    ]


ENDINGS: tuple[Ending, ...] = get_args(Ending)
CAUSES: dict[Ending, Cause] = {
    "cancel": "user",
    "deadline": "deadline",
    "shutdown": "shutdown",
    "call": "user",
    "kill": "crash",
    "kill_sealed": "crash",
}


def outcome(row: Row) -> OutcomeKind:
    """Return how the run of a row ends."""
    if row.kind.endswith("_over") or row.ending in ("call", "kill"):
        return "completed"
    return "failed" if row.ending == "kill_sealed" else "cancelled"


# --- what the model is told ---------------------------------------------------------------------------------------

BECAUSE: dict[Ending, str] = {
    "cancel": "the user stopped the run",
    "deadline": "the run's deadline passed",
    "shutdown": "the service was shutting down",
    "call": "the user stopped it",
    "kill": "the process died",
    "kill_sealed": "the process died",
}
TOLD: dict[CallStatus, str] = {
    "not_started": "This call was not started because {because}. It had no effect.",
    "cancelled": "This call was stopped while it was running, because {because}. It may have had partial effect.",
    "unknown": "This call was started, and then {because} before its outcome was known. It may have taken effect, and "
    "may still do so. Check before doing it again.",
}

# --- the page -----------------------------------------------------------------------------------------------------


def markdown(ending: Ending) -> str:
    """Return an ending's table, and below it why some cells are empty."""
    notes: dict[str, int] = {}
    lines = [f"| the tool | {' | '.join(COLUMNS)} |", "|---|" + "---|" * len(COLUMNS)]
    for kind, about in KINDS.items():
        cells = [_cell(kind, column, ending, notes) for column in COLUMNS]
        if any(not cell.startswith("–") for cell in cells):
            lines.append(f"| {about.title} | {' | '.join(cells)} |")
    shown = "\n".join(lines)
    reasons = [f"{number}. {reason}" for reason, number in notes.items() if f"– ({number})" in shown]
    return shown + ("\n\n" + "\n".join(reasons) if reasons else "")


def _cell(kind: str, column: Column, ending: Ending, notes: dict[str, int]) -> str:
    reason = excluded(kind, column, ending)
    if not reason:
        return str(expected(kind, column, ending))
    return f"– ({notes.setdefault(reason, len(notes) + 1)})"


def told() -> str:
    """Return the table of what the model is told."""
    lines = ["| status | the model is told |", "|---|---|"]
    lines += [f"| `{status}` | {text.format(because='…')} |" for status, text in TOLD.items()]
    return "\n".join(lines)


def tables() -> Mapping[str, str]:
    """Return the generated parts of the page, by name."""
    return {**{ending: markdown(ending) for ending in ENDINGS}, "told": told()}


def parts(page: str) -> dict[str, str]:
    """Return the generated parts of a page as they stand there, by name."""
    return {name: text for _, name, text, _ in _PART.findall(page)}


def filled(page: str) -> str:
    """Return the page with the tables of the rows."""
    new = tables()
    return _PART.sub(lambda found: f"{found[1]}{new[found[2]]}\n{found[4]}", page)


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
