"""What the model judges after pairs and shape: the tail (A12, A13), thinking (A14 to A15), forced tools (A30)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal, TypeAlias

from heaveto.core.json_values import Body, fields, text
from heaveto.core.validate.anthropic_turns import Block, Turn, rejected
from heaveto.core.validate.violation import Violation
from heaveto.core.wire_kinds import SERVER_CALLS, THINKING

Thinking = Literal["manual", "adaptive", "disabled"]
Issued: TypeAlias = Mapping[str, str | Collection[str]]
"""The thoughts that a model has had, by their signatures."""


def tail_violation(turns: list[Turn], *, prefill: bool, strict_unconfirmed: bool) -> Violation | None:
    """Return what is wrong with an assistant turn at the end, or None."""
    if not turns or turns[-1].role != "assistant" or _is_paused(turns[-1]):
        return None
    if not prefill:
        words = "This model does not support assistant message prefill."
        return rejected("A12", f"{words} The conversation must end with a user message.")
    last = turns[-1].blocks[-1] if turns[-1].blocks else None
    if strict_unconfirmed and last is not None and last.kind == "text" and text(last.block.get("text"))[-1:].isspace():
        return rejected("A13", "messages: final assistant content cannot end with trailing whitespace", sure=False)
    return None


def _is_paused(turn: Turn) -> bool:
    """Whether an answer may have stopped with ``pause_turn``, so that it goes on when it is sent back (F22)."""
    return any(block.kind in SERVER_CALLS for block in turn.blocks) and not turn.of("tool_use")


def thinking_violation(body: Body, turns: list[Turn], *, default: Thinking, issued: Issued | None) -> Violation | None:
    """Return the first block of thinking that is missing, in the way or changed, or None."""
    mode = mode_of(body, default)
    if mode == "manual":
        broken = _missing(turns)
    elif mode == "disabled":
        broken = _in_the_way(turns)
    else:
        broken = None
    return broken or (_changed(turns, issued) if issued is not None else None)


def mode_of(body: Body, default: Thinking) -> Thinking:
    """Return how a request wants the model to think."""
    match fields(body.get("thinking")).get("type"):
        case "enabled":
            return "manual"
        case "disabled":
            return "disabled"
        case "adaptive":
            return "adaptive"
        case _:
            return default


def _missing(turns: list[Turn]) -> Violation | None:
    """Thinking leads the calls that are under way, once: after a result the model need not think again (A14)."""
    start = next((place for place in range(len(turns) - 1, -1, -1) if _is_asked(turns[place])), -1) + 1
    under_way = next((turn for turn in turns[start:] if turn.role == "assistant"), None)
    if under_way is None or not under_way.of("tool_use") or under_way.blocks[0].kind in THINKING:
        return None
    first = under_way.blocks[0]
    words = (
        f"{first.where}.type: Expected `thinking` or `redacted_thinking`, but found `{first.kind}`. When `thinking` is "
        "enabled, a final `assistant` message must start with a thinking block (preceeding the lastmost set of "
        "`tool_use` and `tool_result` blocks)."
    )
    return rejected("A14", words)


def _is_asked(turn: Turn) -> bool:
    return turn.role == "user" and not turn.holds_results_only


def _in_the_way(turns: list[Turn]) -> Violation | None:
    final = [turn for turn in turns[-2:] if turn.role == "assistant"]
    if not final or not (final[0] is turns[-1] or turns[-1].holds_results_only):
        return None
    for block in final[0].blocks:
        if block.kind in THINKING:
            words = f"an `assistant` message in the final position cannot contain `{block.kind}`."
            return rejected("A14'", f"{block.where}.type: When thinking is disabled, {words}")
    return None


def _changed(turns: list[Turn], issued: Issued) -> Violation | None:
    latest = next((turn for turn in reversed(turns) if turn.role == "assistant"), None)
    for turn in turns:
        for block in turn.of("thinking"):
            signed = issued.get(block.id_at("signature"))
            if signed is None:
                return rejected("A15", f"{block.where}: Invalid `signature` in `thinking` block")
            if block.block.get("thinking") not in ([signed] if isinstance(signed, str) else signed):
                return _edited(block, is_latest=turn is latest)
    return None


def _edited(block: Block, *, is_latest: bool) -> Violation:
    if not is_latest:
        return rejected("A15", f"{block.where}: Invalid `signature` in `thinking` block")
    words = (
        "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. These blocks "
        "must remain as they were in the original response."
    )
    return rejected("A15", f"{block.where}: {words}")


def choice_violation(body: Body, *, forced_choice: bool, default: Thinking) -> Violation | None:
    """Return why a tool may not be forced on the model, or None (A30)."""
    if fields(body.get("tool_choice")).get("type") not in ("any", "tool"):
        return None
    if mode_of(body, default) == "manual":
        return rejected("A30", "Thinking may not be enabled when tool_choice forces tool use.")
    return None if forced_choice else rejected("A30", "tool_choice: this model does not support forced tool use")
