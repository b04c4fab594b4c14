"""Messages of another format than the history's: who changes providers leaves them behind.

A history that is wholly of another format is refused, with that one's name: the caller most likely named the wrong one.
Where both are, or he wants it, each foreign message is read for what all formats have (words, calls, results) and
written anew. What then is wrong with pairs, ids and ends is repaired as everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from heaveto.core.repair import Change
from heaveto.core.wire_marks import Family, Mark, foreign_mark, marks_of
from heaveto.errors import InvalidHistoryError
from heaveto.histories.neutral import reading_of
from heaveto.histories.profiles import Profile
from heaveto.histories.work import Body, Work, is_body
from heaveto.histories.writers import written

NAMES: dict[Family, str] = {
    "chat": "openai",
    "responses": "openai-responses",
    "anthropic": "anthropic",
    "gemini": "gemini",
    "bedrock": "bedrock",
}
"""What `repair` calls the formats."""


@dataclass(slots=True)
class Converted:
    """A history in one format; `origins` has the index that each message had in the input."""

    messages: list[Body] = field(default_factory=list[Body])
    origins: list[int] = field(default_factory=list[int])
    changes: list[Change] = field(default_factory=list[Change])


def require_own(history: list[Body], profile: Profile) -> None:
    """Raise if the history has what only another format has, and nothing that only its own has.

    Raises:
        InvalidHistoryError: it is of another format, which the message names.
    """
    foreign: tuple[int, Mark] | None = None
    for index, message in enumerate(history):
        for mark in marks_of(message):
            if mark.owners == (profile.family,):
                return
            if foreign is None and len(mark.owners) == 1:
                foreign = index, mark
    if foreign is not None:
        index, mark = foreign
        raise InvalidHistoryError(index, f"{_named(mark)} is of another format than {profile.name!r}; {_advice(mark)}")
    if profile.family == "gemini":
        _require_parts(history)


def _require_parts(history: list[Body]) -> None:
    """Nothing but words: whose they are cannot be told, so no other format is named."""
    for index, message in enumerate(history):
        if message.get("content"):
            raise InvalidHistoryError(
                index,
                "has 'content' where Gemini has 'parts'; say the provider whose format this is, "
                "or foreign='convert' to have it in Gemini's",
            )


def convert(work: Work) -> Converted | None:
    """Return the messages with those of other formats written in this one; None if there are none."""
    family = work.profile.family
    marks = {place: mark for place, message in work.to_clean() if (mark := foreign_mark(message, family)) is not None}
    if not marks:
        return None
    done = Converted()
    for index, message in work.placed():
        mark = marks.get(index)
        told = [message] if mark is None else _converted(done, index, message, mark, work.profile)
        done.messages += told
        done.origins += [index] * len(told)
    return done


def _converted(done: Converted, index: int, message: Body, mark: Mark, profile: Profile) -> list[Body]:
    if mark.kind != "item" and not isinstance(message.get("role"), str) and "parts" not in message:
        raise InvalidHistoryError(index, "has no role; is it a message of any of the formats?")
    reading = reading_of(message)
    told = written(reading, profile.family)
    lost = f"; left out: {', '.join(dict.fromkeys(reading.lost))}" if reading.lost else ""
    known = f"{_named(mark)} is of the format {_owners(mark)}{lost}"
    done.changes.append(Change(_rule(profile), index, "converted" if told else "dropped", known=known))
    return told


def _rule(profile: Profile) -> str:
    """The rule that says what a message is."""
    return "M0" if profile.bridged else _RULES[profile.family]


_RULES: dict[Family, str] = {"chat": "O0", "responses": "R0", "anthropic": "A0", "gemini": "G0", "bedrock": "B0"}


def _named(mark: Mark) -> str:
    match mark.kind:
        case "role":
            return f"the role {mark.name!r}"
        case "key":
            return f"{mark.name!r}"
        case "block":
            return f"a block of type {mark.name!r}" if mark.owners != ("bedrock",) else f"a block with {mark.name!r}"
        case "item":
            return f"an item of type {mark.name!r}"


def _owners(mark: Mark) -> str:
    return " or ".join(repr(NAMES[owner]) for owner in mark.owners)


def _advice(mark: Mark) -> str:
    return f"say provider={_owners(mark)}, or foreign='convert' to have it converted"


def format_of_body(body: Body, profile: Profile) -> str:
    """Say of which format a request's body may be that has no messages where its own would have them."""
    for key, name in (("contents", "gemini"), ("input", "openai-responses"), ("messages", "openai")):
        if key != profile.key and isinstance(body.get(key), list):
            marks = [mark for message in body[key] if is_body(message) for mark in marks_of(message)]
            told = next((NAMES[mark.owners[0]] for mark in marks if len(mark.owners) == 1), name)
            return f"; it has {key!r}: say provider={told!r}"
    return ""
