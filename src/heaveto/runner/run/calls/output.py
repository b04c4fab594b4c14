"""What a running call puts out: shown to readers as it comes, and kept for the case that no result comes."""

from __future__ import annotations

from collections import deque

import msgspec

from heaveto.events.contents import Json, Text
from heaveto.events.records import Delta, Draft
from heaveto.runner.run.draft import SAVE_AFTER_CHARACTERS
from heaveto.tools.response import to_json

KEPT_CHARACTERS = 65_536
"""How much of an output is kept: the first half of it, and the last."""
_SHOWN_PIECES = 1_024


def piece_text(piece: Json) -> str:
    """Return a piece of output as text: text as it is, but for what no log can hold; anything else as a line of JSON.

    Raises:
        NotSerializableError: JSON cannot say it.
    """
    if isinstance(piece, str):
        return piece if piece.isascii() else piece.encode("utf-8", "replace").decode()
    return msgspec.json.encode(to_json(piece)).decode() + "\n"


class CallOutput:
    """A call's output, up to the moment. To readers and to the store it is a draft like that of a message.

    Attributes:
        message_id: its key among the run's drafts.
        unsaved: characters since the last save.
    """

    __slots__ = ("_head", "_left_out", "_pieces", "_shown", "_tail", "_tail_length", "author", "branch", "call_id",
                 "message_id", "run_id", "unsaved")  # fmt: skip

    def __init__(self, *, run_id: str, call_id: str, author: str, branch: str) -> None:
        self.run_id, self.call_id, self.author, self.branch = run_id, call_id, author, branch
        self.message_id = f"output:{call_id}"
        self.unsaved = 0
        self._pieces: deque[Delta] = deque(maxlen=_SHOWN_PIECES)
        self._shown = 0
        self._head = ""
        self._tail: deque[str] = deque()
        self._tail_length = self._left_out = 0

    def put(self, text: str) -> None:
        """Take a piece."""
        if not text:
            return
        self.unsaved += len(text)
        self._shown += 1
        self._pieces.append(
            Delta(
                run_id=self.run_id, message_id=self.message_id, author=self.author, kind="output", text=text,
                branch=self.branch, call_id=self.call_id,
            )
        )  # fmt: skip
        self._keep(text)

    def _keep(self, text: str) -> None:
        half = KEPT_CHARACTERS // 2
        room = half - len(self._head)
        self._head, text = self._head + text[:room], text[room:]
        if not text:
            return
        self._tail.append(text)
        self._tail_length += len(text)
        while self._tail_length > half:
            excess, first = self._tail_length - half, self._tail.popleft()
            cut = first[excess:]
            self._left_out += len(first) - len(cut)
            self._tail_length -= len(first) - len(cut)
            if cut:
                self._tail.appendleft(cut)

    @property
    def text(self) -> str:
        """What was put out; of a long output its beginning and its end."""
        gap = f"\n[… {self._left_out} characters left out …]\n" if self._left_out else ""
        return f"{self._head}{gap}{''.join(self._tail)}"

    @property
    def wants_saving(self) -> bool:
        return self.unsaved >= SAVE_AFTER_CHARACTERS

    def since(self, position: int) -> tuple[list[Delta], int]:
        """Return the pieces behind a position, and the position behind them; what was too long ago is left out."""
        missed = self._shown - position
        return (list(self._pieces)[-missed:] if missed > 0 else []), self._shown

    def snapshot(self, *, last: bool = False) -> Draft:
        """Return what was put out so far."""
        return Draft(
            message_id=self.message_id, run_id=self.run_id, author=self.author, parts=(Text(text=self.text),),
            branch=self.branch, call_id=self.call_id,
        )  # fmt: skip
