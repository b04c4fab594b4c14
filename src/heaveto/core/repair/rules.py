"""What a format wants of calls and results, and what the caller of a repair wants. Data, no behaviour."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

import msgspec

from heaveto.core.wire_names import COMMON_IDS, IdRule
from heaveto.events.contents import Json

Fault: TypeAlias = Literal["unanswered", "orphan", "misplaced", "duplicate", "mismatch", "reused", "id", "unnamed"]
Why: TypeAlias = Literal["unknown", "pending", "malformed"]
"""Why a call has no result: nothing tells, somebody still works on it, its arguments could not be read."""


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """What a format wants.

    Attributes:
        rules: the id of the format's rule for each fault, for the report.
        ids: which ids are taken.
        ids_required: a call without an id gets one; else both sides may be without (Gemini, G14).
        unique_in: where an id may stand only once.
        adjacent: results must follow their turn at once; else anywhere behind their call will do (R4).
        in_call_order: where results are put behind a turn, all of them stand in the order of its calls (G14).
        results_named: results carry the name of their tool (G15).
        orphans_allowed: the call may be in a stored chain that is not seen here (``previous_response_id``, R3).
    """

    rules: Mapping[Fault, str]
    ids: IdRule = COMMON_IDS
    ids_required: bool = True
    unique_in: Literal["turn", "history"] = "history"
    adjacent: bool = True
    in_call_order: bool = False
    results_named: bool = False
    orphans_allowed: bool = False


def no_results(call_id: str) -> Json:
    """Know nothing."""
    return None


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What the caller wants.

    Attributes:
        texts: words for stand-ins that replace the usual ones.
        quote_orphans: keep results without a call as words of the user, instead of dropping them.
        pending: ids of calls on which somebody still works: their stand-ins say so and are no errors.
        awaited: ids of calls that the next input answers: at the end of the history they stay open.
        results: what the caller knows of a call without a result, by its id in the input; None if nothing.
        convert_foreign: write a history that is wholly of another format in this one, instead of refusing it.
    """

    texts: Mapping[Why, str] = msgspec.field(default_factory=dict[Why, str])
    quote_orphans: bool = False
    pending: frozenset[str] = frozenset()
    awaited: frozenset[str] = frozenset()
    results: Callable[[str], Json] = no_results
    convert_foreign: bool = False
