"""The rules of Anthropic Messages: shape, pairing, server tools, tail, thinking.

Messages of one role in a row are one turn; errors name the original indices. What depends on the model is an option;
the defaults are those of current models.
"""

from __future__ import annotations

from heaveto.core.json_values import Body, objects
from heaveto.core.validate.anthropic_blocks import shape_violation
from heaveto.core.validate.anthropic_pairing import pairing_violation, server_violation, undeclared_violation
from heaveto.core.validate.anthropic_thinking import (
    Issued,
    Thinking,
    choice_violation,
    tail_violation,
    thinking_violation,
)
from heaveto.core.validate.anthropic_turns import Turn, rejected, turns_of
from heaveto.core.validate.violation import Violation


def validate(
    body: Body,
    *,
    strict_unconfirmed: bool = False,
    prefill: bool = False,
    thinking: Thinking = "adaptive",
    issued_thinking: Issued | None = None,
    tools_known: bool = True,
    tools_required: bool = False,
    system_messages: bool = True,
    forced_choice: bool = True,
    older_wording: bool = False,
) -> Violation | None:
    """Return the first rule that a request body breaks, or None.

    Args:
        body: the body of a request.
        strict_unconfirmed: judge what no public report confirms too.
        prefill: the model goes on from a last answer, as those before 4.6 do (A12).
        thinking: what the model does where the body does not say it (A14, A14').
        issued_thinking: the thoughts that the model has had, by their signatures, one or several for each; all else is
            refused (A15).
        tools_known: the body tells which tools there are (A20, A21).
        tools_required: the model or gateway wants tools declared where blocks of tools are (A21).
        system_messages: the model takes messages of the role system, at their places (A25).
        forced_choice: the model lets itself be forced to call (A30).
        older_wording: calls without results are named in the words that Bedrock and Vertex still have (A1').
    """
    messages = objects(body.get("messages"))
    turns = turns_of([message for message in messages if message.get("role") != "system"])
    return (
        shape_violation(body, messages, turns, strict_unconfirmed)
        or _system_violation(messages, system_messages)
        or choice_violation(body, forced_choice=forced_choice, default=thinking)
        or pairing_violation(turns, strict_unconfirmed=strict_unconfirmed, prefill=prefill, older_wording=older_wording)
        or server_violation(turns)
        or (undeclared_violation(body, turns, tools_required=tools_required) if tools_known else None)
        or tail_violation(turns, prefill=prefill, strict_unconfirmed=strict_unconfirmed)
        or thinking_violation(body, turns, default=thinking, issued=issued_thinking)
        or (_head_violation(turns) if strict_unconfirmed else None)
    )


def model_violation(body: Body, *, strict_unconfirmed: bool, prefill: bool) -> Violation | None:
    """Return what the model refuses where a service has judged the rest: tail and thinking."""
    turns = turns_of([message for message in objects(body.get("messages")) if message.get("role") != "system"])
    return tail_violation(turns, prefill=prefill, strict_unconfirmed=strict_unconfirmed) or thinking_violation(
        body, turns, default="adaptive", issued=None
    )


def _system_violation(messages: list[Body], system_messages: bool) -> Violation | None:
    """A system message stands before an assistant turn, or at the end and after a user turn (A25)."""
    roles = [message.get("role") for message in messages]
    for index, role in enumerate(roles):
        if role != "system":
            continue
        if not system_messages:
            words = 'Unexpected role "system". The Messages API accepts a top-level `system` parameter.'
            return rejected("A25", f"messages: {words}")
        following = roles[index + 1] if index + 1 < len(roles) else None
        before = roles[index - 1] if index else None
        if following not in ("assistant", "system") and not (following is None and before in ("user", "system")):
            words = "`system` messages must directly precede an `assistant` message, or end the conversation"
            return rejected("A25", f"messages.{index}: {words}")
    return None


def _head_violation(turns: list[Turn]) -> Violation | None:
    if not turns:
        return rejected("A29", "messages: at least one message is required", sure=False)
    if turns[0].role != "user":
        return rejected("A24", 'messages: first message must use the "user" role', sure=False)
    return None
