"""A quick look at a history: which parts of it are certainly in order, so that a repair may leave them alone.

Each message is marked with a letter for what it plainly is, and a regular expression finds what is quiet among the
letters. A stretch begins where the model speaks to words of a user, or to results, and ends before the next one. It is
quiet if each message in it is plainly what its format wants, stands where it may, and each call has its one result at
once. Quiet means that a repair changes nothing there, as long as nothing elsewhere has the ids of its calls. What is
not plain is not quiet: the rules are not told here again, only what satisfies all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from heaveto.core.repair import Policy
from heaveto.core.wire_names import NameRule
from heaveto.histories.profiles import Profile

Seen: TypeAlias = tuple[str, *tuple[str, ...]]
"""What a message plainly is, as a letter, and the ids of its calls or results. Tuples of texts alone, because of a long
history all are kept for a while, and Python's cycle collector passes over these."""
Look: TypeAlias = Callable[[dict[str, Any]], Seen]

UNCLEAR: Final[Seen] = ("?",)
WORDS: Final[Seen] = ("w",)
"""Not the model's."""
SAID: Final[Seen] = ("s",)
STORED: Final[Seen] = ("i",)
"""What the model said, under an id: it may follow a thought (R5)."""
THOUGHT: Final[Seen] = ("t",)
CALLS: Final = "c"
SIGNED: Final = "g"
"""Calls of which one is signed (G10)."""
RESULTS: Final = "r"
_TURN = re.compile("[cg]+r+|r+")


class Fitting(dict[str, bool]):
    """Which names a format takes as they are; each is looked at once."""

    def __init__(self, rule: NameRule) -> None:
        self._rule = rule

    def __missing__(self, name: str) -> bool:
        self[name] = fits = self._rule.fit(name) == name
        return fits


class Sight(NamedTuple):
    """What a glance at histories of a provider needs; `look` remembers the names of tools that it saw.

    `inner` matches the letters of quiet stretches, `quiet` finds them in a history.
    """

    profile: Profile
    look: Look
    inner: re.Pattern[str]
    quiet: re.Pattern[str]


def sight_with(profile: Profile, look: Look, stretch: str) -> Sight:
    """Return what a glance needs, from the pattern of a quiet stretch.

    The first and the last stretch of a history are never quiet, because a provider wants more of both ends.
    """
    return Sight(profile, look, re.compile(f"(?:{stretch})+"), re.compile(f"(?<=[wr])(?:{stretch})+(?=[sitcg])"))


@dataclass(slots=True)
class Glance:
    """What a glance tells of a history.

    Attributes:
        marks: a letter for each message.
        parts: what must be looked at closely, in order.
        ids: of the calls in the rest.
    """

    marks: str
    parts: list[range] = field(default_factory=list[range])
    ids: list[str] = field(default_factory=list[str])

    def pick(self, messages: list[Any]) -> list[Any]:
        """Return the messages of the parts."""
        return [message for part in self.parts for message in messages[part.start : part.stop]]

    def unclear(self) -> list[int]:
        """Return the places of what is not plain among the messages of the parts."""
        picked = "".join([self.marks[part.start : part.stop] for part in self.parts])
        return [place for place, letter in enumerate(picked) if letter == "?"] if "?" in picked else []


def glance(messages: list[dict[str, Any]], sight: Sight) -> Glance:
    """Part a history into what is quiet and what is not."""
    seen = list(map(sight.look, messages))
    marks = "".join([told[0] for told in seen])
    policy = sight.profile.policy
    found = _parted(marks, _with_wrong_turns_unclear(marks, seen), seen, sight)
    if not _fit(found.ids, policy):
        found = _parted(marks, _with_wrong_turns_unclear(marks, seen, policy), seen, sight)
    return found


def _parted(marks: str, clear: str, seen: list[Seen], sight: Sight) -> Glance:
    found = Glance(marks)
    stop = len(clear) if sight.profile.within_turns else clear.rfind("w")
    at = 0
    for run in sight.quiet.finditer(clear, 0, stop):
        start, end = run.span()
        found.parts.append(range(at, start))
        found.ids += _calls_in(seen[start:end])
        at = end
    found.parts.append(range(at, len(marks)))
    return found


def calls_in_order(messages: list[dict[str, Any]], sight: Sight) -> list[str] | None:
    """Return the ids of the calls in messages between a user's words and the model's next turn; None if not quiet."""
    seen = list(map(sight.look, messages))
    marks = "".join([told[0] for told in seen])
    if not sight.inner.fullmatch(marks) or "?" in _with_wrong_turns_unclear(marks, seen):
        return None
    calls = _calls_in(seen)
    return calls if _fit(calls, sight.profile.policy) else None


def _calls_in(seen: list[Seen]) -> list[str]:
    return [call_id for told in seen if told[0] == CALLS or told[0] == SIGNED for call_id in told[1:]]


def _fit(ids: list[str], policy: Policy) -> bool:
    """Whether a format takes the ids of several turns as they are; each turn's are known to differ."""
    is_unique = policy.unique_in == "turn" or len(set(ids)) == len(ids)
    return is_unique and all(map(policy.ids.valid.fullmatch, ids))


def _with_wrong_turns_unclear(marks: str, seen: list[Seen], policy: Policy | None = None) -> str:
    """Take turns for unclear whose results are not those of their calls; with a policy, also those with unfit ids."""
    known: set[str] = set()
    clear: list[str] = []
    at = 0
    for turn in _TURN.finditer(marks):
        start, end = turn.span()
        if end - start == 2:
            called, answered = seen[start][1:], seen[start + 1][1:]
        else:
            middle = marks.index(RESULTS, start)
            called = tuple([call_id for told in seen[start:middle] for call_id in told[1:]])
            answered = tuple([call_id for told in seen[middle:end] for call_id in told[1:]])
        is_right = called == answered or sorted(called) == sorted(answered)
        is_right = is_right and (len(called) == 1 or len(called) == len({*called}))
        if policy is not None:
            is_right = is_right and _fit([*called], policy) and known.isdisjoint(called)
            known.update(called if policy.unique_in == "history" else ())
        if not is_right:
            clear += (marks[at:start], "?" * (end - start))
            at = end
    return "".join([*clear, marks[at:]])
