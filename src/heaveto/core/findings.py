"""What an agent that worked for a call had found when it did not finish: told to its caller as partial (F157)."""

from __future__ import annotations

from collections import deque

from heaveto.core import notes
from heaveto.events.contents import FunctionCall, Text
from heaveto.events.records import CallSettled, Message, Record

_LINES = 40
_CHARACTERS = 2_000


class Findings:
    """What agents said, called and got, quoted in order. Bounded: the newest count, and long ones are cut.

    Attributes:
        calls: the calls that they made: who made it, and of which tool.
    """

    __slots__ = ("_left_out", "_lines", "calls")

    def __init__(self) -> None:
        self.calls: dict[str, tuple[str, str]] = {}
        self._lines: deque[str] = deque(maxlen=_LINES)
        self._left_out = 0

    def take(self, record: Record) -> None:
        """Take one record more of those agents' work."""
        match record:
            case Message() if record.author != "user" and record.interrupted != "guardrail":
                self._message(record)
            case CallSettled() if record.call_id in self.calls:
                self._add(notes.foreign_result(*self.calls[record.call_id], record))
            case _:
                pass

    def _message(self, record: Message) -> None:
        for part in record.parts:
            if isinstance(part, Text) and part.text.strip():
                self._add(notes.foreign_text(record.author, part.text))
            elif isinstance(part, FunctionCall):
                self.calls[part.call_id] = record.author, part.name
                self._add(notes.foreign_call(record.author, part))
        if record.interrupted is not None:
            self._add(notes.foreign_cut(record.author))

    def _add(self, line: str) -> None:
        self._left_out += len(self._lines) == _LINES
        self._lines.append(line if len(line) <= _CHARACTERS else f"{line[:_CHARACTERS]}…")

    @property
    def lines(self) -> tuple[str, ...]:
        """All of it, with a word for what was too much."""
        left_out = (f"[{self._left_out} lines before these are left out.]",) if self._left_out else ()
        return (*left_out, *self._lines)
