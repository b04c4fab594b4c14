"""A message while it is being streamed: assembled, shown to readers, saved now and then."""

from __future__ import annotations

from heaveto.core.request import ModelRequest
from heaveto.events.contents import FunctionCall
from heaveto.events.records import Cause, Delta, Draft, Message
from heaveto.ids import IdSource
from heaveto.models.assemble import Assembler, estimate_usage
from heaveto.models.base import CallChunk, Chunk, Model, TextChunk, ThoughtChunk

SAVE_AFTER_SECONDS = 0.25
SAVE_AFTER_CHARACTERS = 1024
_SAVE_AFTER_PART = 16


class LiveDraft:
    """One answer of a model, up to the moment.

    Attributes:
        message_id: the id that the final message will have.
        deltas: what readers are shown, in order; a reader keeps its own position in it.
        unsaved: characters received since the last save.
    """

    __slots__ = (
        "_assembler",
        "_model",
        "_received",
        "author",
        "branch",
        "deltas",
        "message_id",
        "request",
        "unsaved",
    )

    def __init__(
        self, message_id: str, *, author: str, branch: str, model: Model, request: ModelRequest, ids: IdSource
    ) -> None:
        self.message_id, self.author, self.branch, self.request = message_id, author, branch, request
        self._model = model
        self._assembler = Assembler(ids, provider=model.profile.name)
        self.deltas: list[Delta] = []
        self.unsaved = self._received = 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing of the answer was received yet, so that the request may be repeated (F63)."""
        return not self._assembler.partial()

    @property
    def assembler(self) -> Assembler:
        return self._assembler

    @property
    def wants_saving(self) -> bool:
        """Whether so much is new that it is to be saved now: 1 kB, or, as each save writes all of it, a sixteenth.

        So what the saves of an answer cost together grows with its length, and not with the square of it (P9).
        """
        return self.unsaved >= max(SAVE_AFTER_CHARACTERS, self._received // _SAVE_AFTER_PART)

    def feed(self, chunk: Chunk) -> bool:
        """Take one chunk; return whether there is something new to show."""
        self._assembler.feed(chunk)
        match chunk:
            case TextChunk(text=text) if text:
                return self._show("text", text)
            case ThoughtChunk(text=text) if text:
                return self._show("thought", text)
            case CallChunk(args=args, index=index) if args:
                return self._show("args", args, index)
            case _:
                return False

    def since(self, position: int) -> tuple[list[Delta], int]:
        """Return the pieces behind a position, and the position behind them."""
        return self.deltas[position:], len(self.deltas)

    def _show(self, kind: str, text: str, index: int = 0) -> bool:
        self.unsaved += len(text)
        self._received += len(text)
        self.deltas.append(
            Delta(
                run_id=self.request.run_id,
                message_id=self.message_id,
                author=self.author,
                kind=kind,  # type: ignore[arg-type]
                text=text,
                branch=self.branch,
                index=index,
            )
        )
        return True

    def cut_off(self, cause: Cause, time: float) -> Message:
        """Return what was received as a message that was cut. Calls in it never came to be, and are left out."""
        draft = self.snapshot(last=True)
        return Message(
            id=draft.message_id, time=time, run_id=draft.run_id, author=draft.author, branch=draft.branch,
            parts=tuple(part for part in draft.parts if not isinstance(part, FunctionCall)), usage=draft.usage,
            provider=draft.provider, model=draft.model, seen=draft.seen, finish_reason="interrupted", interrupted=cause,
        )  # fmt: skip

    def snapshot(self, *, last: bool = False) -> Draft:
        """Return what was received so far, with a usage that is estimated where the provider did not report it (F126).

        The `last` one, that of a cut answer, estimates the request as well, which means reading all of it.
        """
        parts, usage = self._assembler.partial(), self._assembler.usage
        if usage is None or usage.estimated:
            asked = self.request if last else ModelRequest(turns=())
            usage = self._model.priced(estimate_usage(asked, parts, usage))
        return Draft(
            message_id=self.message_id,
            run_id=self.request.run_id,
            author=self.author,
            parts=parts,
            branch=self.branch,
            provider=self._model.profile.name,
            model=self._model.name,
            seen=self.request.seen,
            usage=usage,
        )
