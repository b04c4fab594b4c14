"""The seam to the repair of histories and to the validators, for histories that come from files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from heaveto.core.validate.violation import Violation
from heaveto.histories.files.json_text import Object
from heaveto.histories.files.report import FileChange


@dataclass(frozen=True, slots=True)
class Paired:
    """A repaired history, what was changed, and what its provider would still refuse.

    `body` is the repaired request body, where the history was part of one. `problems` names messages that could not be
    understood; the history is then as it was.
    """

    history: list[Object]
    changes: tuple[FileChange, ...] = ()
    refused: Violation | None = None
    problems: tuple[str, ...] = ()
    body: Object | None = None


def known_format(name: str) -> str:
    """Return the usual name of a format."""
    return name


def paired(history: Sequence[Object], provider: str) -> Paired:
    """Repair a list of messages."""
    from heaveto.histories import repair

    new, report = repair(list(history), provider=provider)
    return Paired(
        new, tuple(FileChange(c.rule, c.action, 0, c.index, c.call_id or "", c.name or "") for c in report.changes)
    )


def paired_body(body: Object, messages: list[Object], key: str | None, provider: str) -> Paired:
    """Repair the list of a request body, and what else of the body depends on it."""
    return paired(messages, provider)
