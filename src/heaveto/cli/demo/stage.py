"""How the demo looks where there is no terminal: plain lines, readable in a log file."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from heaveto.cli.describe import one_line, shortened, summary_of
from heaveto.events.records import CallSettled, CancelRequested, Message, Record, RunEnded

Tone = Literal["plain", "strong", "quiet", "good", "bad", "warn"]
_LABEL = 8
_INDENT = " " * (_LABEL + 3)
_CHECK = " " * 7
_RECORD_HEAD = 24


@dataclass(frozen=True, slots=True)
class Check:
    """A promise that was put to the test: which one, in words, and whether it was kept."""

    promise: str
    words: str
    kept: bool


@dataclass(frozen=True, slots=True)
class Tally:
    """A line of the summary: a promise, what it says, and how its checks came out."""

    promise: str
    words: str
    kept: int
    checks: int


class Stage:
    """Writes lines of limited width. A richer stage overrides `_put` and the blocks."""

    def __init__(self, write: Callable[[str], object], width: int) -> None:
        self._write, self._width = write, width
        self._column = 0
        """Where the streamed text stands; 0 if none is being streamed."""

    # --- blocks

    def scene(self, number: int, title: str, sentence: str) -> None:
        """Begin a scene."""
        head = f"-- {number}. {title} "
        self._put("\n" + head.ljust(self._width, "-") + "\n")
        self._put(textwrap.fill(sentence, self._width) + "\n\n")

    def records(self, records: Sequence[Record], caption: str) -> None:
        """Show records as a table."""
        self.end_text()
        self._put(f"\n  {caption}\n", "quiet")
        for record in records:
            self._put(f"  {record.seq:>4}  ", "quiet")
            self._put(f"{type(record).__name__:<15} ", _tone(record))
            self._put(shortened(summary_of(record), self._width - _RECORD_HEAD) + "\n")

    def gap(self) -> None:
        """Leave a line free."""
        self.end_text()
        self._put("\n")

    def summary(self, tallies: Sequence[Tally], closing: str, *, kept: bool) -> None:
        """Show what became of all promises."""
        self._put("\n" + "-- Promises ".ljust(self._width, "-") + "\n")
        for tally in tallies:
            mark = "kept  " if tally.kept == tally.checks else "BROKEN"
            self._put(f"  {mark}  {tally.promise}  {tally.kept:>2} of {tally.checks:<2}  {tally.words}\n")
        self._put(f"\n{closing}\n", "good" if kept else "bad")

    # --- lines

    def line(self, label: str, text: str, tone: Tone = "plain") -> None:
        """Say something in one paragraph behind a label."""
        self.end_text()
        body = textwrap.fill(one_line(text), self._width, initial_indent=_INDENT, subsequent_indent=_INDENT)
        self._put(f"{label:>{_LABEL}}   ", "strong")
        self._put(body[len(_INDENT) :] + "\n", tone)

    def stream(self, text: str, label: str = "agent") -> None:
        """Say a piece more of a streamed text; the first piece begins a paragraph."""
        for word in _words(text):
            if not self._column:
                self._put(f"{label:>{_LABEL}}   ", "strong")
                self._column = len(_INDENT)
            if self._column + len(word) > self._width:
                self._put("\n" + _INDENT)
                self._column = len(_INDENT)
            piece = word.lstrip() if self._column == len(_INDENT) else word
            self._put(piece)
            self._column += len(piece)

    def check(self, check: Check) -> None:
        """Show a promise that was put to the test."""
        self.end_text()
        mark = "✓" if check.kept else "✗"
        self._put(f"  {mark} {check.promise} ", "good" if check.kept else "bad")
        if not check.kept:
            self._put("BROKEN\n" + _CHECK, "bad")
        body = textwrap.fill(check.words, self._width - 1, initial_indent=_CHECK, subsequent_indent=_CHECK)
        self._put(body[len(_CHECK) :] + "\n")

    def end_text(self) -> None:
        """End the paragraph of a streamed text."""
        if self._column:
            self._put("\n")
            self._column = 0

    # --- inside

    def _put(self, text: str, tone: Tone = "plain") -> None:
        """Write text; a plain stage has no tones."""
        self._write(text)


def _tone(record: Record) -> Tone:
    match record:
        case CancelRequested() | CallSettled(status="cancelled" | "not_started" | "unknown" | "denied"):
            return "warn"
        case RunEnded(outcome=outcome):
            return "good" if outcome == "completed" else "warn"
        case Message(interrupted=cause) if cause is not None:
            return "warn"
        case _:
            return "plain"


def _words(text: str) -> list[str]:
    """Split so that each word keeps the blank before it."""
    words = one_line(text).split(" ") if text.strip() else []
    led = text[:1].isspace()
    return [word if number == 0 and not led else f" {word}" for number, word in enumerate(words)]
