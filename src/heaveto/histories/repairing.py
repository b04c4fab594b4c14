"""`repair`: a history in, a valid one out, and a report of every change."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal, TypeAlias, TypeVar, cast

from msgspec.structs import replace

from heaveto.core.repair import Options, RepairReport, decide
from heaveto.core.repair.decision import Carry
from heaveto.core.repair.rules import Why, no_results
from heaveto.core.wire_marks import Family
from heaveto.errors import ConfigError, InvalidHistoryError
from heaveto.events.contents import Json
from heaveto.histories import views
from heaveto.histories.anthropic import AnthropicFormat
from heaveto.histories.bedrock import BedrockFormat
from heaveto.histories.bodies import policy_for, settle_body
from heaveto.histories.chat import ChatFormat
from heaveto.histories.foreign import convert, format_of_body, require_own
from heaveto.histories.gemini import GeminiFormat
from heaveto.histories.glance import SIGNED, Sight, calls_in_order, glance, sight_with
from heaveto.histories.parts import Repaired, is_apart, put_back
from heaveto.histories.profiles import Profile, profile_named
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
    foreign: Literal["refuse", "convert"] = "refuse",
) -> tuple[History, RepairReport]:
    """Return a history that the provider accepts, and a report of what was changed. Pure and deterministic.

    A valid history comes back as the same object. In a broken one, messages that need no change are the same objects;
    the input is never changed. Calls without a result are answered, never deleted; results move to their calls; the
    user's words stay. The same history gives the same repair, and a repaired one needs none.

    Args:
        history: the provider's own list of messages, contents or input items, or a whole request body. Objects of an
            SDK that can dump themselves are read like the dicts they dump to.
        provider: its format, one of `heaveto.histories.formats()`. "gemini" signs calls where the body names a model
            that wants it, or other calls are signed; "gemini-3" always does.
        texts: other words for results that are made up, by why there is none: "unknown", "pending", "malformed".
        orphans: what becomes of results without a call: they are dropped, or quoted as words of the user.
        pending: ids of calls on which somebody still works. They are answered so, and not as errors.
        awaited: ids of calls that your next input answers: at the end of the history they are left open. As in
            `pending` and `results`, they are those of the history that is passed in.
        results: results that you know, by the id of their call, or a function that returns one or None.
        foreign: what becomes of a history that is wholly of another format: it is refused, or with "convert" written in
            this one, for who changes the provider. Foreign messages among own ones are always converted.

    Raises:
        UnknownFormatError: there is no such format.
        InvalidHistoryError: the history has not the shape of the format, or has that of another, which is named.
        ConfigError: `pending` or `awaited` is a text.
    """
    profile = profile_named(provider)
    options = options_of(
        texts=texts, orphans=orphans, pending=pending, awaited=awaited, results=results, foreign=foreign
    )
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
    foreign: Literal["refuse", "convert"] = "refuse",
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
        convert_foreign=foreign == "convert",
    )


def _known(results: Results | None) -> Callable[[str], Json]:
    if results is None:
        return no_results
    if callable(results):
        return results
    known = dict(results)
    return known.get


def repair_messages(
    history: list[Any],
    profile: Profile,
    options: Options,
    *,
    settings: Body | None = None,
    before: Carry | None = None,
    is_end: bool = True,
) -> Repaired:
    """Repair a list.

    With `before`, it goes on from a repaired history that ends with a user's words; with `is_end` false, the model
    goes on behind it.
    """
    if not isinstance(history, list):  # pyright: ignore[reportUnnecessaryIsInstance] - callers without a type checker
        raise InvalidHistoryError(
            None, f"must be a list of messages or a body, not {type(history).__name__}{_instead(history)}"
        )
    if views.are_dicts(history):
        try:
            return _repaired(history, history, profile, options, settings, before, is_end)
        except InvalidHistoryError:
            pass  # something within is no dict: perhaps an object of an SDK, perhaps an error, which will be told below
    return _repaired(history, views.readable(history), profile, options, settings, before, is_end)


def _instead(history: object) -> str:
    return "; read JSON text with json.loads" if isinstance(history, str | bytes) else "; pass list(…)"


def _repaired(
    history: list[Any],
    readable: list[Body],
    profile: Profile,
    options: Options,
    settings: Body | None,
    before: Carry | None,
    is_end: bool,
) -> Repaired:
    if before is None and not options.convert_foreign:
        require_own(readable, profile)
    work = Work(
        profile, list(readable), settings or {}, is_start=before is None, is_end=is_end, origins=range(len(readable))
    )
    done = repair_in_parts(work, readable, options) if before is None and is_end else None
    done = done or repair_closely(work, readable, options, before or Carry())
    if done.messages is readable:
        done.messages = history
    elif readable is not history:
        done.messages = views.restored(done.messages, readable, history)
    return done


def repair_in_parts(work: Work, history: list[Body], options: Options) -> Repaired | None:
    """Repair what a glance does not find in order, by itself; None if that would not be the same."""
    profile = work.profile
    if not _FORMATS[profile.family].is_divisible(history, work.settings):
        return None
    seen = glance(history, sight_of(profile))
    picked = seen.pick(history)
    if len(picked) == len(history):
        return None
    if profile.signatures == "if given" and SIGNED in seen.marks:
        profile = replace(profile, signatures="given")
    part = Work(profile, list(picked), work.settings, origins=range(len(picked)), unclear=seen.unclear())
    try:
        done = repair_closely(part, picked, options, Carry())
    except InvalidHistoryError:
        return None  # it will be raised again, with the place in the whole history
    return put_back(history, seen, done) if is_apart(done, seen) else None


def sight_of(profile: Profile) -> Sight:
    """Return what a glance at a provider's histories needs."""
    chosen = _FORMATS[profile.family]
    return sight_with(profile, chosen.looker(profile), chosen.stretch(profile))


def seen_in_order(part: list[Any], seen_by: Sight, before: Carry) -> Carry | None:
    """Glance at what stands between a user's words, or results, and the model's next turn.

    Returns what a continuation must know of it, if a repair would change nothing there, nor before; else None.
    """
    if not views.are_dicts(part) or not _FORMATS[seen_by.profile.family].is_divisible(part, {}):
        return None
    calls = calls_in_order(part, seen_by)
    if calls is None:
        return None
    ids = set(calls)
    is_new = ids.isdisjoint(before.unmatched_ids) and ids.isdisjoint(before.used_ids)
    return Carry(ids, ids, calls=len(calls)) if is_new else None


def repair_closely(work: Work, history: list[Body], options: Options, before: Carry) -> Repaired:
    """Look at every message: have them in one format, read them, decide, and do it."""
    converted = convert(work)
    if converted is None:
        return _repaired_closely(work, history, options, before)
    messages, origins = converted.messages, converted.origins
    own = Work(
        work.profile, list(messages), work.settings, is_start=work.is_start, is_end=work.is_end,
        origins=range(len(messages)),
    )  # fmt: skip
    done = _repaired_closely(own, messages, options, before)
    changes = [*converted.changes, *(replace(change, index=origins[change.index]) for change in done.changes)]
    places = [origins[origin] for origin in done.origins] if done.changes else origins
    changes.sort(key=lambda change: change.index)
    # Whether this is a history of another format, only the whole of it tells.
    return Repaired(done.messages, changes, done.carry, done.reaches_back or not work.is_start, places)


def _repaired_closely(work: Work, history: list[Body], options: Options, before: Carry) -> Repaired:
    profile, chosen = work.profile, _FORMATS[work.profile.family]
    chosen.clean(work)
    steps = chosen.read(work)
    if not work.is_end:
        options = replace(options, awaited=frozenset[str](), pending=options.pending | options.awaited)
    decision = decide(steps, policy_for(profile, work.settings), options, before)
    work.changes += decision.changes
    work.left_open = bool(decision.plan.left_open)
    if not decision.plan.is_empty or work.changes:
        chosen.apply(work, decision.plan)
    if history:
        chosen.settle(work)
    if not work.changes:
        return Repaired(history, [], decision.carry, decision.plan.reaches_back)
    there = work.placed()
    changes = sorted(work.changes, key=lambda change: change.index)
    messages = [message for _, message in there]
    return Repaired(messages, changes, decision.carry, decision.plan.reaches_back, [origin for origin, _ in there])


def _repair_body(body: Body, profile: Profile, options: Options) -> tuple[Body, RepairReport]:
    if profile.key not in body:
        told = format_of_body(body, profile) or "; pass messages as a list"
        raise InvalidHistoryError(None, f"a request body of {profile.name} must have {profile.key!r}{told}")
    history: object = body[profile.key]
    if isinstance(history, str) and profile.family == "responses":
        return body, RepairReport(profile.name)  # one text of the user, nothing to repair
    done = repair_messages(cast("list[Any]", history), profile, options, settings=body)
    messages = views.readable(done.messages)
    settled, fitting, more = settle_body(profile, body, messages)
    repaired = done.messages if fitting is messages else views.restored(fitting, messages, done.messages)
    if repaired is not history:
        settled = {**settled, profile.key: repaired}
    return settled, RepairReport(profile.name, tuple(sorted([*done.changes, *more], key=lambda change: change.index)))
