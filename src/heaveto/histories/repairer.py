"""Repair as a conversation grows: what was seen before is not looked at again."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from operator import is_
from typing import Any, Literal

from msgspec.structs import replace

from heaveto.core.repair import Change, RepairReport
from heaveto.core.repair.decision import Carry
from heaveto.core.repair.report import change_at
from heaveto.core.repair.rules import Why
from heaveto.errors import InvalidHistoryError
from heaveto.histories.anthropic import BREAKPOINTS, breakpoints_in
from heaveto.histories.gemini import holds_signed_call
from heaveto.histories.parts import Repaired
from heaveto.histories.profiles import Profile, profile_named
from heaveto.histories.repairing import Results, options_of, repair_messages, seen_in_order, sight_of
from heaveto.histories.work import is_body, is_list

_PAIRED_LATER = ("R7", "A18")
"""Changes that what came before may have made needless: they have the whole history looked at."""


class Repairer:
    """Repairs the growing history of one conversation; a call costs what is new in it.

    `repair` gives what the function of that name gives, value for value. A message counts as seen if it is the same
    object in the same place: do not change messages in place. What is new may refer back to what was seen, such as a
    late result; then all is repaired anew. Not for concurrent use.
    """

    def __init__(
        self,
        provider: str = "openai",
        *,
        texts: Mapping[Why, str] | None = None,
        orphans: Literal["drop", "quote"] = "drop",
        pending: Collection[str] = (),
        awaited: Collection[str] = (),
        results: Results | None = None,
        foreign: Literal["refuse", "convert"] = "refuse",
    ) -> None:
        self._profile = profile_named(provider)
        self._sight = sight_of(self._profile)
        self._options = options_of(
            texts=texts, orphans=orphans, pending=pending, awaited=awaited, results=results, foreign=foreign
        )
        self._rest: list[Any] = []
        self._sent: list[Any] = []
        self._forget()

    def _forget(self) -> None:
        """What is settled: the messages seen, what they became, and what the rest must know of them."""
        self._seen: list[Any] = []
        self._changes: tuple[Change, ...] = ()
        self._carry: Carry | None = None
        self._breakpoints, self._signed = 0, False
        self._item_ids: set[str] = set()
        self._settled = 0  # so many messages of `_sent` stay

    def repair(self, history: list[Any]) -> tuple[list[Any], RepairReport]:
        """Return the history as the provider takes it, and a report; the input is never changed."""
        if len(self._seen) > len(history) or not all(map(is_, self._seen, history)):
            self._forget()
        self._rest = history[len(self._seen) :]
        report = self._go_on()
        return (history if report.is_clean else list(self._sent)), report

    def extend(self, messages: Iterable[Any]) -> tuple[list[Any], RepairReport]:
        """Put messages behind all that came before; return the whole history as the provider takes it, and a report.

        The same as `repair` of the whole, but nothing old is compared or copied: a call costs what is new, and what
        came since the model last took its turn. The list is the repairer's own, which grows: it is valid until the
        next call, and not to be changed. Copy it to keep it.

        Raises:
            InvalidHistoryError: as `repair` of the whole; the messages stay, so that every later call raises it too.
        """
        self._rest = [*self._rest, *messages]
        report = self._go_on()
        return self._sent, report

    def _go_on(self) -> RepairReport:
        """Settle what can be, and repair the rest, or all of it where something refers back."""
        done = self._repaired_rest()
        if done is None:
            self._rest = [*self._seen, *self._rest]
            self._forget()
            done = repair_messages(self._rest, self._profile, self._options)
        self._sent[self._settled :] = done.messages
        return RepairReport(self._profile.name, self._changes + _moved(done.changes, len(self._seen)))

    def _repaired_rest(self) -> Repaired | None:
        end = self._boundary()
        try:
            if end and not self._settle(end):
                return None
            done = repair_messages(self._rest, self._profile_now(), self._options, before=self._carry)
        except InvalidHistoryError:
            return None  # it will be raised again, with the place in the whole history
        return None if self._refers_back(self._rest, done) else done

    def _boundary(self) -> int:
        """Return the last index at which the model speaks after somebody else; 0 if none."""
        rest, within_turns = self._rest, self._profile.within_turns
        for index in range(len(rest) - 1, 0, -1):
            before = rest[index - 1]
            if _is_models(rest[index]) and _is_others(before) and (within_turns or _is_words(before)):
                return index
        return 0

    def _settle(self, end: int) -> bool:
        """Take messages as settled, unless their repair leaves something at the end that a neighbour could change."""
        part = self._rest[:end]
        done = self._glanced(part) or repair_messages(
            part, self._profile_now(), self._options, before=self._carry, is_end=False
        )
        if self._refers_back(part, done):
            return False
        if done.messages and done.messages[-1] is part[-1]:
            self._changes += _moved(done.changes, len(self._seen))
            self._seen += part
            self._sent[self._settled :] = done.messages
            self._settled = len(self._sent)
            self._rest = self._rest[end:]
            self._carry = self._carry or Carry()
            self._carry.add(done.carry)
            self._item_ids |= _item_ids(part)
            self._breakpoints += breakpoints_in(part)
            self._signed = self._signed or (
                self._profile.signatures == "if given" and any(map(holds_signed_call, part))
            )
        return True

    def _glanced(self, part: list[Any]) -> Repaired | None:
        carry = seen_in_order(part, self._sight, self._carry) if self._carry is not None else None
        return Repaired(part, [], carry) if carry is not None else None

    def _profile_now(self) -> Profile:
        """What the provider wants behind what is settled: whether calls are signed there."""
        return replace(self._profile, signatures="given") if self._signed else self._profile

    def _refers_back(self, part: list[Any], done: Repaired) -> bool:
        if self._carry is None:
            return False
        if self._profile.family == "responses" and not self._item_ids.isdisjoint(_item_ids(part)):
            return True
        if done.messages and not _is_models(done.messages[0]):
            return True  # what the model said there is gone, so that it parts nothing any more
        if self._profile.family == "anthropic" and self._breakpoints + breakpoints_in(part) > BREAKPOINTS:
            return True
        return done.reaches_back or any(change.rule in _PAIRED_LATER for change in done.changes)


def _moved(changes: list[Change], offset: int) -> tuple[Change, ...]:
    return tuple([change_at(change.index + offset, change) for change in changes])


def _item_ids(items: list[Any]) -> set[str]:
    return {item["id"] for item in items if is_body(item) and isinstance(item.get("id"), str)}


def _is_models(message: object) -> bool:
    """Whether a dict is of the model. Objects of SDKs are not looked into: they end no part."""
    if not is_body(message):
        return False
    role, kind = message.get("role"), message.get("type")
    if role is not None:
        return role in ("assistant", "model")
    return isinstance(kind, str) and (kind == "reasoning" or kind.endswith("_call"))


def _is_others(message: object) -> bool:
    if not is_body(message):
        return False
    kind = message.get("type")
    if isinstance(kind, str) and (kind == "reasoning" or kind.endswith(("_call", "_output"))):
        return kind.endswith("_output")  # whatever role somebody gave it
    return message.get("role") in ("user", "tool")


def _is_words(message: object) -> bool:
    """Whether the user says something there, and gives no results."""
    if not is_body(message) or message.get("role") != "user":
        return False
    parts = message.get("parts")
    return not is_list(parts) or not any(
        is_body(part) and ("functionResponse" in part or "function_response" in part) for part in parts
    )
