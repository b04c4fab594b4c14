"""What a call asks of the gate, and what is seen of it there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from heaveto.errors import InputError

Key: TypeAlias = tuple[str, ...]
"""What may run only so often at the same time, such as ``("tool", "search")``.

One that begins with ``("user", NAME)`` may be asked for by that user only.
"""

CallRef: TypeAlias = tuple[str, str]
"""A run id and the id of one of its calls."""


@dataclass(frozen=True, slots=True)
class SlotRequest:
    """What a call needs in order to run.

    Attributes:
        run_id, call_id: which call; no two are at a gate with the same ids.
        user: whose turn it uses.
        slots: how many calls may run at the same time, this one included, for each key.
        inside: the calls that this one is inside of, which wait for it.
    """

    run_id: str
    call_id: str
    user: str
    slots: Mapping[Key, int]
    inside: tuple[CallRef, ...] = ()

    def __post_init__(self) -> None:
        for key, limit in self.slots.items():
            if limit < 1:
                raise InputError(
                    f"the limit of {' '.join(key)} is {limit}: nothing could ever run; it must be positive"
                )
            if key[0] == "user" and key[1] != self.user:
                raise InputError(f"user {self.user!r} asks for a slot of {' '.join(key)}, which is not theirs")

    @property
    def ref(self) -> CallRef:
        return (self.run_id, self.call_id)


@dataclass(frozen=True, slots=True)
class WaitingCall:
    """A call that waits at a key. `position` counts from 1, in the order in which slots of this key will be given."""

    ref: CallRef
    user: str
    position: int
    since: float


@dataclass(frozen=True, slots=True)
class GateState:
    """One key: its limit as last asked for, the calls that have a slot, and those that wait, the next one first."""

    key: Key
    limit: int
    running: tuple[CallRef, ...]
    waiting: tuple[WaitingCall, ...]
