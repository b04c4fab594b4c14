"""What was found in a file and done about it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from heaveto.core.validate.violation import Violation
from heaveto.histories.files.damage import Damage
from heaveto.histories.files.shape import Kind


@dataclass(frozen=True, slots=True)
class FileChange:
    """One change to a message: by which rule, at which line, and at which place in the history (from 0).

    `call_id` and `name` tell the call, where the change is about one.
    """

    rule: str
    action: str
    line: int
    index: int
    call_id: str = ""
    name: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A history that its provider would still refuse, as far as that is known: the line where it begins, and why."""

    line: int
    violation: Violation


@dataclass(slots=True)
class Repaired:
    """What a file became, and what was done so far: `FileRepair` while it is made."""

    output: bytes = b""
    messages: int = 0
    damage: tuple[Damage, ...] = ()
    changes: list[FileChange] = field(default_factory=list[FileChange])
    refused: list[Refusal] = field(default_factory=list[Refusal])
    problems: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, slots=True)
class FileRepair:
    """A repaired file. `output` is `data` itself where nothing was wrong with it.

    `kind` tells whose file it is, `provider` the format of its messages; `messages` counts them. `refused` is judged
    after the repair. `problems` are told in words: what could not be understood and was left as it was.
    """

    kind: Kind
    container: Literal["json", "jsonl"]
    provider: str
    messages: int
    output: bytes
    damage: tuple[Damage, ...] = ()
    changes: tuple[FileChange, ...] = ()
    refused: tuple[Refusal, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def is_changed(self) -> bool:
        """Whether the repaired file differs."""
        return bool(self.damage or self.changes)

    @property
    def is_broken(self) -> bool:
        """Whether anything was wrong, or still is."""
        return self.is_changed or bool(self.refused or self.problems)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as a JSON object, without the file's content."""
        return {
            "kind": self.kind,
            "container": self.container,
            "provider": self.provider,
            "messages": self.messages,
            "broken": self.is_broken,
            "damage": [asdict(damage) for damage in self.damage],
            "changes": [asdict(change) for change in self.changes],
            "refused": [
                {
                    "line": refusal.line,
                    "rule": refusal.violation.rule,
                    "status": refusal.violation.status,
                    "message": refusal.violation.message,
                    "unconfirmed": refusal.violation.unconfirmed,
                }
                for refusal in self.refused
            ],
            "problems": list(self.problems),
        }
