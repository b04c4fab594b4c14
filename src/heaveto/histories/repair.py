"""`repair`: a history in, a valid one out, and a report of every change."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeVar, cast

from heaveto.core.repair import Change, Options, RepairReport, decide
from heaveto.core.repair.decide import Carry
from heaveto.core.repair.rules import Why, no_results
from heaveto.errors import ConfigError, InvalidHistoryError
from heaveto.events.contents import Json
from heaveto.histories import views
from heaveto.histories.anthropic import AnthropicFormat
from heaveto.histories.bedrock import BedrockFormat
from heaveto.histories.bodies import policy_for, settle_body
from heaveto.histories.chat import ChatFormat
from heaveto.histories.foreign import require_own
from heaveto.histories.gemini import GeminiFormat
from heaveto.histories.profiles import Family, Profile, profile_named
from heaveto.histories.responses import ResponsesFormat
from heaveto.histories.work import Body, Format, Work

History = TypeVar("History", bound="list[Any] | dict[str, Any]")
Results: TypeAlias = Mapping[str, Json] | Callable[[str], Json]
_FORMATS: Mapping[Family, Format] = {
    "chat": ChatFormat(),
    "responses": ResponsesFormat(),
    "anthropic": AnthropicFormat(),
    "gemini": GeminiFormat(),
    "bedrock": BedrockFormat(),
}


def repair(
    history: History,
    provider: str = "openai",
    *,
    texts: Mapping[Why, str] | None = None,
    orphans: Literal["drop", "quote"] = "drop",
    pending: Collection[str] = (),
    awaited: Collection[str] = (),
    results: Results | None = None,
) -> tuple[History, RepairReport]:
    """Return a history that the provider accepts, and a report of what was changed. Pure and deterministic.

    A valid history comes back as the same object. In a broken one, messages that need no change are the same objects;
    the input is never changed. Calls without a result are answered, never deleted; results move to their calls; the
    user's words stay. The same history gives the same repair, and a repaired one needs none.

    Args:
        history: the provider's own list of messages, contents or input items, or a whole request body. Objects of an
            SDK that can dump themselves are read like the dicts they dump to.
        provider: its format, one of `heaveto.histories.formats()`.
        texts: other words for results that are made up, by why there is none: "unknown", "pending", "malformed".
        orphans: what becomes of results without a call: they are dropped, or quoted as words of the user.
        pending: ids of calls on which somebody still works. They are answered so, and not as errors.
        awaited: ids of calls that your next input answers: at the end of the history they are left open.
        results: results that you know, by the id of their call, or a function that returns one or None.

    Raises:
        UnknownFormatError: there is no such format.
        InvalidHistoryError: the history has not the shape of the format, or has that of another.
        ConfigError: `pending` or `awaited` is a text.
    """
    profile = profile_named(provider)
    options = options_of(texts=texts, orphans=orphans, pending=pending, awaited=awaited, results=results)
    if isinstance(history, dict):
        body, report = _repair_body(history, profile, options)
        return cast("History", body), report
    done = repair_messages(history, profile, options)
    return cast("History", done.messages), RepairReport(profile.name, tuple(done.changes))


def options_of(
    *,
    texts: Mapping[Why, str] | None = None,
    orphans: Literal["drop", "quote"] = "drop",
    pending: Collection[str] = (),
    awaited: Collection[str] = (),
    results: Results | None = None,
) -> Options:
    """Return the caller's wishes as the algorithm takes them."""
    for name, ids in (("pending", pending), ("awaited", awaited)):
        if isinstance(ids, str):
            raise ConfigError(f"repair: {name} is one id, {ids!r}; pass a list of ids")
    return Options(
        texts=texts or {},
        quote_orphans=orphans == "quote",
        pending=frozenset(pending),
        awaited=frozenset(awaited),
        results=_known(results),
    )


def _known(results: Results | None) -> Callable[[str], Json]:
    if results is None:
        return no_results
    if callable(results):
        return results
    known = dict(results)
    return known.get


@dataclass(slots=True)
class Repaired:
    """A repaired list; `reaches_back` tells that it cannot stand behind what `before` described."""

    messages: list[Any]
    changes: list[Change]
    carry: Carry
    reaches_back: bool


def repair_messages(
    history: list[Any],
    profile: Profile,
    options: Options,
    *,
    settings: Body | None = None,
    before: Carry | None = None,
) -> Repaired:
    """Repair a list. With `before`, it goes on from a repaired history that ends with a user's words."""
    if not isinstance(history, list):  # pyright: ignore[reportUnnecessaryIsInstance] - callers without a type checker
        raise InvalidHistoryError(
            None, f"must be a list of messages or a body, not {type(history).__name__}{_instead(history)}"
        )
    if views.are_dicts(history):
        try:
            return _repaired(history, history, profile, options, settings, before)
        except InvalidHistoryError:
            pass  # something within is no dict: perhaps an object of an SDK, perhaps an error, which will be told below
    return _repaired(history, views.readable(history), profile, options, settings, before)


def _instead(history: object) -> str:
    return "; read JSON text with json.loads" if isinstance(history, str | bytes) else "; pass list(…)"


def _repaired(
    history: list[Any],
    readable: list[Body],
    profile: Profile,
    options: Options,
    settings: Body | None,
    before: Carry | None,
) -> Repaired:
    if before is None:
        require_own(readable, profile)
    chosen = _FORMATS[profile.family]
    work = Work(profile, list(readable), settings or {}, is_start=before is None, origins=range(len(history)))
    chosen.clean(work)
    steps = chosen.read(work)
    decision = decide(steps, policy_for(profile, work.settings), options, before or Carry())
    work.changes += decision.changes
    work.left_open = bool(decision.plan.left_open)
    if not decision.plan.is_empty or work.changes:
        chosen.apply(work, decision.plan)
    if history:
        chosen.settle(work)
    if not work.changes:
        return Repaired(history, [], decision.carry, decision.plan.reaches_back)
    messages = [message for message in work.messages if message is not None]
    changes = sorted(work.changes, key=lambda change: change.index)
    if readable is not history:
        messages = views.restored(messages, readable, history)
    return Repaired(messages, changes, decision.carry, decision.plan.reaches_back)


def _repair_body(body: Body, profile: Profile, options: Options) -> tuple[Body, RepairReport]:
    if profile.key not in body:
        raise InvalidHistoryError(
            None, f"a request body of {profile.name} must have {profile.key!r}; pass messages as a list"
        )
    history: object = body[profile.key]
    if isinstance(history, str) and profile.family == "responses":
        return body, RepairReport(profile.name)  # one text of the user, nothing to repair
    done = repair_messages(cast("list[Any]", history), profile, options, settings=body)
    messages = views.readable(done.messages)
    settled, more = settle_body(profile, body, messages)
    if done.messages is not history:
        settled = {**settled, profile.key: done.messages}
    return settled, RepairReport(profile.name, tuple(sorted([*done.changes, *more], key=lambda change: change.index)))
