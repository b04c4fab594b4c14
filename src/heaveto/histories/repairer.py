"""Repair as a conversation grows: what was seen before is not looked at again."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from operator import is_
from typing import Any, Literal

from msgspec.structs import replace

from heaveto.core.repair import Change, RepairReport
from heaveto.core.repair.decide import Carry
from heaveto.core.repair.rules import Why
from heaveto.histories.anthropic import BREAKPOINTS, breakpoints_in
from heaveto.histories.gemini import holds_signed_call
from heaveto.histories.profiles import Profile, profile_named
from heaveto.histories.repair import Repaired, Results, options_of, repair_messages
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
    ) -> None:
        self._profile = profile_named(provider)
        self._options = options_of(texts=texts, orphans=orphans, pending=pending, awaited=awaited, results=results)
        by_turn = self._profile.signatures != "never" or self._profile.reasoning_content == "current turn"
        self._within_turns = not by_turn
        self._forget()

    def _forget(self) -> None:
        """What is settled: the messages seen, what they became, and what the rest must know of them."""
        self._seen: list[Any] = []
        self._settled: list[Any] = []
        self._changes: list[Change] = []
        self._carry: Carry | None = None
        self._breakpoints, self._signed = 0, False
        self._item_ids: set[str] = set()

    def repair(self, history: list[Any]) -> tuple[list[Any], RepairReport]:
        """Return the history as the provider takes it, and a report; the input is never changed."""
        if len(self._seen) > len(history) or not all(map(is_, self._seen, history)):
            self._forget()
        done = self._rest_of(history)
        if done is None:
            self._forget()
            done = repair_messages(history, self._profile, self._options)
        changes = [*self._changes, *_moved(done.changes, len(self._seen))]
        report = RepairReport(self._profile.name, tuple(changes))
        return (history if report.is_clean else [*self._settled, *done.messages]), report

    def _rest_of(self, history: list[Any]) -> Repaired | None:
        """Settle what can be, and repair the rest; None if something refers back."""
        end = self._boundary(history)
        if end and not self._settle(history[len(self._seen) : end]):
            return None
        rest = history[len(self._seen) :]
        done = repair_messages(rest, self._profile_now(), self._options, before=self._carry)
        return None if self._refers_back(rest, done) else done

    def _boundary(self, history: list[Any]) -> int:
        """Return the last index at which the model speaks after somebody else, behind what was seen; 0 if none."""
        for index in range(len(history) - 1, len(self._seen), -1):
            before = history[index - 1]
            if _is_models(history[index]) and _is_others(before) and (self._within_turns or _is_words(before)):
                return index
        return 0

    def _settle(self, part: list[Any]) -> bool:
        """Take messages as settled, unless their repair leaves something at the end that a neighbour could change."""
        done = repair_messages(part, self._profile_now(), self._options, before=self._carry, is_end=False)
        if self._refers_back(part, done):
            return False
        if done.messages and done.messages[-1] is part[-1]:
            self._changes += _moved(done.changes, len(self._seen))
            self._seen += part
            self._settled += done.messages
            self._carry = self._carry or Carry()
            self._carry.add(done.carry)
            self._item_ids |= _item_ids(part)
            self._breakpoints += breakpoints_in(part)
            self._signed = self._signed or (
                self._profile.signatures == "if given" and any(map(holds_signed_call, part))
            )
        return True

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


def _moved(changes: list[Change], offset: int) -> list[Change]:
    return [replace(change, index=change.index + offset) for change in changes] if offset else changes


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
    return message.get("role") in ("user", "tool") or (isinstance(kind, str) and kind.endswith("_output"))


def _is_words(message: object) -> bool:
    """Whether the user says something there, and gives no results."""
    if not is_body(message) or message.get("role") != "user":
        return False
    parts = message.get("parts")
    return not is_list(parts) or not any(
        is_body(part) and ("functionResponse" in part or "function_response" in part) for part in parts
    )
