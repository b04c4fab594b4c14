"""One repair in progress: the messages, what was done to them, and what every format needs for its part."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, TypeGuard, cast

import msgspec

from heaveto.core.repair import Change, Made, Moved, Plan, Quoted
from heaveto.core.repair.report import Action
from heaveto.core.repair.steps import Insert, Step
from heaveto.core.wire_names import NameRule
from heaveto.errors import InvalidHistoryError
from heaveto.events.contents import Json
from heaveto.histories.glance import Look
from heaveto.histories.profiles import Profile

Body: TypeAlias = dict[str, Any]


@dataclass(slots=True)
class Work:
    """The messages of a history while they are repaired.

    Attributes:
        messages: as they are by now. None where one went: places stay what they were until the plan is applied.
        origins: the index in the input that each message has or is put behind.
        raw_args: arguments that were no JSON object, by the identity of their call as it is now.
        settings: the rest of the request's body, where one was given: read only.
        snake_case: whether keys are written ``function_call`` instead of ``functionCall`` (Gemini's Python SDK).
        has_images: whether results hold images where the format takes none.
        is_end: whether it ends here; if not, the model goes on behind it.
        left_open: whether what stands at the end is gone on with, so that nothing may follow it.
        is_start: whether the history begins here; a continuation does not.
        unclear: the places of messages that are not plainly what the format wants; None if nobody looked.
    """

    profile: Profile
    messages: list[Body | None]
    settings: Body
    is_start: bool = True
    is_end: bool = True
    snake_case: bool = False
    has_images: bool = False
    left_open: bool = False
    origins: Sequence[int] = ()
    unclear: Sequence[int] | None = None
    changes: list[Change] = field(default_factory=list[Change])
    raw_args: dict[int, str] = field(default_factory=dict[int, str])
    names: dict[str, str] = field(default_factory=dict[str, str])

    def to_clean(self) -> list[tuple[int, Body]]:
        """Return the messages that may hold what their format does not take, with their places."""
        places = range(len(self.messages)) if self.unclear is None else self.unclear
        return [(place, cast("Body", self.messages[place])) for place in places]

    def report(
        self, rule: str, index: int, action: Action, known: str = "", *, call_id: str = "", name: str = ""
    ) -> None:
        """Note a change."""
        self.changes.append(Change(rule, index, action, call_id, name, known))

    def keep_raw(self, call: Body, raw: str | None) -> None:
        """Remember what a call's arguments were before they became ``{}``."""
        if raw is not None:
            self.raw_args[id(call)] = raw

    def with_text_id(self, holder: Body, key: str, index: int) -> Body:
        """Return a call or result with its id as text, where it is a number: both sides of a pair are read alike."""
        number: object = holder.get(key)
        if type(number) is not int:
            return holder
        self.report(self.profile.policy.rules["id"], index, "edited", "the id was a number", call_id=str(number))
        return {**holder, key: str(number)}

    def raw_of(self, call: Body) -> str | None:
        """Return what a call's arguments were, if they were no JSON object."""
        return self.raw_args.get(id(call)) if self.raw_args else None

    def fit_name(self, name: str, rule: NameRule) -> str:
        """Return a tool's name as the format takes it; each is looked at once."""
        fitting = self.names.get(name)
        if fitting is None:
            fitting = self.names[name] = rule.fit(name)
        return fitting

    def rebuild(self, messages: list[Body | None], origins: list[int]) -> None:
        """Put other messages in the place of all; those that are gone leave no place."""
        if None in messages:
            kept = [(origin, message) for origin, message in zip(origins, messages, strict=True) if message is not None]
            messages, origins = [message for _, message in kept], [origin for origin, _ in kept]
        self.messages, self.origins = messages, origins

    def placed(self) -> list[tuple[int, Body]]:
        """Return the messages that are there, with their origins."""
        pairs = zip(self.origins, self.messages, strict=True)
        return [(origin, message) for origin, message in pairs if message is not None]


class Format(Protocol):
    """How one family of formats is read and written. Stateless."""

    def is_divisible(self, messages: list[Body], settings: Body) -> bool:
        """Whether parts of the history may be looked at by themselves."""
        ...

    def looker(self, profile: Profile) -> Look:
        """Return what tells what a message plainly is."""
        ...

    def stretch(self, profile: Profile) -> str:
        """Return the pattern of a quiet stretch: letters of the model's messages, and then of others."""
        ...

    def clean(self, work: Work) -> None:
        """See to each unclear message by itself: what may not be in it, and what must."""
        ...

    def read(self, work: Work) -> list[Step]:
        """Return calls and results in order."""
        ...

    def apply(self, work: Work, plan: Plan) -> None:
        """Do what was decided."""
        ...

    def settle(self, work: Work) -> None:
        """See to what concerns neighbours and both ends."""
        ...


def objects_at(value: object, index: int, what: str) -> list[Body]:
    """Return a list of JSON objects; nothing where there is none."""
    if value is None:
        return []
    if not is_list(value):
        raise InvalidHistoryError(index, f"{what} must be a list, not {type(value).__name__}")
    for item in value:
        if type(item) is not dict:
            raise InvalidHistoryError(index, f"{what} must hold objects, not {type(item).__name__}")
    return cast("list[Body]", value)


def is_body(value: object) -> TypeGuard[Body]:
    """Whether a value is a JSON object."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[object]]:
    """Whether a value is a JSON list."""
    return isinstance(value, list)


def texts_of(value: object) -> str:
    """Return the texts of a list of blocks or parts, a line each; of a string itself; else nothing."""
    if isinstance(value, str):
        return value
    blocks = [block for block in value if is_body(block)] if is_list(value) else []
    return "\n".join(text for block in blocks if (text := text_of(block.get("text"))))


def text_of(value: object) -> str:
    """Return a string, or an empty one where it is something else."""
    return value if isinstance(value, str) else ""


def as_object(arguments: object) -> tuple[Body, str | None]:
    """Return arguments as a JSON object, and the raw text where they were none (A8, F31). Nothing at all is ``{}``."""
    if is_body(arguments):
        return arguments, None
    if arguments is None or arguments == "":
        return {}, None
    if isinstance(arguments, str):
        try:
            value: object = msgspec.json.decode(arguments)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            return {}, arguments
        return (value, None) if is_body(value) else ({}, arguments)
    return {}, json_words(arguments)


def json_words(value: object) -> str:
    """Return any value as JSON text, on one line; what JSON cannot say is said as Python does."""
    try:
        return msgspec.json.encode(value, enc_hook=repr).decode()
    except UnicodeEncodeError:  # half of a surrogate pair, which no server takes
        text = json.dumps(value, separators=(",", ":"), default=repr, skipkeys=True, ensure_ascii=False)
        return text.encode("utf-8", "replace").decode()
    except (RecursionError, TypeError, ValueError):  # deeper than any provider takes, or keys that are no text
        return _repr(value)


def _repr(value: object) -> str:
    try:
        return repr(value)
    except RecursionError:
        return "[nested too deeply]"


def words_of(value: Json) -> str:
    """Return a result as text: a string as it is, anything else as JSON."""
    return value if isinstance(value, str) else json_words(value)


def parted(inserts: Iterable[Insert]) -> tuple[list[Made | Moved], list[Quoted]]:
    """Part results from quotations, which stand behind them."""
    results: list[Made | Moved] = []
    quotes: list[Quoted] = []
    for insert in inserts:
        match insert:
            case Quoted():
                quotes.append(insert)
            case Made() | Moved():
                results.append(insert)
    return results, quotes
