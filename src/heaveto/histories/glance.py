"""A quick look at a history: which parts of it are certainly in order, so that a repair may leave them alone.

A stretch begins where the model speaks to words of a user, or to results, and ends before the next one. It is quiet if
each message in it is plainly what its format wants, stands where it may, and each call has its one result at once.
Quiet means that a repair changes nothing there, as long as nothing elsewhere has the ids of its calls. What is not
plain is not quiet: the rules are not told here again, only what satisfies all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

from heaveto.core.repair import Policy
from heaveto.core.wire_names import NameRule
from heaveto.histories.profiles import Profile

Kind: TypeAlias = Literal["words", "said", "stored", "thought", "calls", "results"]
"""Words are not the model's; what it said may be stored under an id, and follow a thought (R5)."""
Seen: TypeAlias = tuple[Kind, list[str]]
"""What a message plainly is, with the ids of its calls or results."""
Look: TypeAlias = Callable[[dict[str, Any]], Seen | None]
Grammar: TypeAlias = Mapping[str, frozenset[str]]
"""What may stand behind what."""

_NONE: list[str] = []
WORDS: Seen = ("words", _NONE)
SAID: Seen = ("said", _NONE)
STORED: Seen = ("stored", _NONE)
THOUGHT: Seen = ("thought", _NONE)
_MODELS = frozenset(("said", "stored", "thought", "calls"))


def grammar(words: str, said: str, calls: str, results: str, thought: str = "") -> Grammar:
    """Return a grammar from the kinds that may follow each kind."""
    rows = {"words": words, "said": said, "stored": said, "calls": calls, "results": results, "thought": thought}
    return {kind: frozenset(rows.get(kind, "").split()) for kind in (*rows, "unclear")}


class Fitting(dict[str, bool]):
    """Which names a format takes as they are; each is looked at once."""

    def __init__(self, rule: NameRule) -> None:
        self._rule = rule

    def __missing__(self, name: str) -> bool:
        self[name] = fits = self._rule.fit(name) == name
        return fits


@dataclass(slots=True)
class Glance:
    """The parts that must be looked at closely, in order, and what is in the others: ids of calls, how many calls."""

    parts: list[range] = field(default_factory=list[range])
    ids: set[str] = field(default_factory=set[str])
    calls: int = 0

    def pick(self, messages: list[Any]) -> list[Any]:
        """Return the messages of the parts."""
        return [message for part in self.parts for message in messages[part.start : part.stop]]

    def add(self, start: int, end: int) -> None:
        """Take note of a part."""
        if self.parts and self.parts[-1].stop == start:
            self.parts[-1] = range(self.parts[-1].start, end)
        else:
            self.parts.append(range(start, end))


class Sight(NamedTuple):
    """What a glance at histories of a provider needs; it remembers the names of tools that it saw."""

    profile: Profile
    look: Look
    follows: Grammar


def glance(messages: list[dict[str, Any]], sight: Sight, *, is_inner: bool = False) -> Glance:
    """Part a history into stretches.

    The first and the last one are never quiet, because a provider wants more of both ends. With `is_inner` the messages
    are some between a user's words and the model's next turn, and no end is seen.
    """
    (profile, look, follows), found = sight, Glance()
    policy = profile.policy
    once = policy.unique_in == "history"
    known: set[str] = set()
    ends = ("words", "results") if profile.within_turns else ("words",)
    calls: list[str] = []
    quiet_calls: list[str] = []
    waiting: list[str] = []
    before = "words" if is_inner else "unclear"
    start, is_quiet = 0, is_inner
    for index, message in enumerate(messages):
        seen = look(message)
        if seen is None:
            before, is_quiet = "unclear", False
            continue
        kind, ids = seen
        if kind not in follows[before]:
            is_quiet = False
        if kind == "results":
            if ids == waiting:
                waiting = _NONE
            elif not _answer(ids, waiting):
                before, is_quiet = "unclear", False
                continue
        elif waiting and kind != before:
            waiting, is_quiet = _NONE, False
        if kind in _MODELS:
            if before in ends:
                if not is_quiet:
                    found.add(start, index)
                elif calls:
                    quiet_calls += calls
                start, is_quiet, calls = index, True, []
            if kind == "calls":
                waiting = [*waiting, *ids]
                calls += ids
                if not (_fit(waiting, policy) and not (once and not known.isdisjoint(ids))):
                    is_quiet = False
                known.update(ids)
        before = kind
    if not is_inner or not is_quiet or before not in ends or waiting:
        found.add(start, len(messages))
    else:
        quiet_calls += calls
    found.ids, found.calls = set(quiet_calls), len(quiet_calls)
    return found


def _answer(ids: list[str], waiting: list[str]) -> bool:
    """Take results from what is waited for; false if one is not among it."""
    for call_id in ids:
        if call_id not in waiting:
            return False
        waiting.remove(call_id)
    return True


def _fit(ids: list[str], policy: Policy) -> bool:
    """Whether a format takes the ids of a turn's calls as they are."""
    valid = policy.ids.valid.fullmatch
    if len(ids) == 1:
        return valid(ids[0]) is not None
    return len(set(ids)) == len(ids) and all(map(valid, ids))
