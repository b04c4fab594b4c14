"""What a repair did: every change, in words for people and in a form for machines."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

Action: TypeAlias = Literal[
    "answered", "moved", "dropped", "quoted", "renamed", "edited", "added", "merged", "split", "converted"
]


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """One change.

    Attributes:
        rule: the provider's rule that was broken, such as ``O1``.
        index: of the message in the input that was changed, or behind which something was added.
        action: what was done.
        call_id, name: of the call or result concerned, as the input had them.
        known: what was known, and what became of it.
    """

    rule: str
    index: int
    action: Action
    call_id: str = ""
    name: str = ""
    known: str = ""

    def __str__(self) -> str:
        about = f" {self.name or 'call'} {self.call_id}".rstrip() if self.call_id or self.name else ""
        return f"{self.rule} at {self.index}: {self.action}{about}{f' ({self.known})' if self.known else ''}"


def change_at(index: int, change: Change) -> Change:
    """Return the same change at another place."""
    return Change(change.rule, index, change.action, change.call_id, change.name, change.known)


class RepairReport(msgspec.Struct, frozen=True):
    """What was changed in a history of `provider`, in the order of the input. False if nothing was."""

    provider: str
    changes: tuple[Change, ...] = ()

    @property
    def is_clean(self) -> bool:
        """Whether the history was valid as it was."""
        return not self.changes

    def __bool__(self) -> bool:
        return bool(self.changes)

    def __str__(self) -> str:
        if not self.changes:
            return f"{self.provider}: nothing to repair"
        count = "1 change" if len(self.changes) == 1 else f"{len(self.changes)} changes"
        return "\n".join([f"{self.provider}: {count}", *(f"  {change}" for change in self.changes)])

    def as_dict(self) -> dict[str, object]:
        """Return the report as JSON values."""
        value: dict[str, object] = msgspec.json.decode(msgspec.json.encode(self))
        return value

    def to_json(self) -> str:
        """Return the report as JSON text."""
        return msgspec.json.encode(self).decode()
