"""Calls and their results in Anthropic's turns: A1 to A5 for the client's tools, A17 to A21 for all tools."""

from __future__ import annotations

from itertools import pairwise

from heaveto.core.json_values import Body, fields, objects, text
from heaveto.core.validate.anthropic_turns import Block, Turn, rejected
from heaveto.core.validate.violation import Violation
from heaveto.core.wire_kinds import SERVER_CALLS


def pairing_violation(
    turns: list[Turn], *, strict_unconfirmed: bool, prefill: bool, older_wording: bool
) -> Violation | None:
    """Return the first call without its result, or result without its call, or None."""
    known: set[str] = set()
    for before, turn in pairwise([Turn("", 0, []), *turns]):
        broken = (
            _results_violation(before, turn)
            or _unanswered(before, turn, older_wording)
            or _duplicate_use(turn, known if strict_unconfirmed else set())
        )
        if broken is not None:
            return broken
        known.update(block.id_at("id") for block in turn.of("tool_use"))
    return _unanswered(turns[-1], None, older_wording) if turns and prefill else None


def _results_violation(before: Turn, turn: Turn) -> Violation | None:
    asked = {block.id_at("id") for block in before.of("tool_use")} if before.role == "assistant" else set[str]()
    answered: set[str] = set()
    for block in turn.of("tool_result"):
        call_id = block.id_at("tool_use_id")
        if call_id not in asked:
            words = (
                f"{block.where}: unexpected `tool_use_id` found in `tool_result` blocks: {call_id}. Each `tool_result` "
                "block must have a corresponding `tool_use` block in the previous message."
            )
            return rejected("A2", words)
        if call_id in answered:
            words = (
                f"{block.where}: each tool_use must have a single result. Found multiple `tool_result` blocks with id: "
            )
            return rejected("A4", words + call_id)
        answered.add(call_id)
    return None


def _unanswered(before: Turn, turn: Turn | None, older_wording: bool) -> Violation | None:
    asked = [block.id_at("id") for block in before.of("tool_use")]
    if before.role != "assistant" or not asked:
        return None
    blocks = turn.blocks if turn is not None else []
    first = next((place for place, block in enumerate(blocks) if block.kind != "tool_result"), len(blocks))
    leading = {block.id_at("tool_use_id") for block in blocks[:first]}
    missing = [call_id for call_id in asked if call_id not in leading]
    if not missing:
        return None
    rule = "A3" if {block.id_at("tool_use_id") for block in blocks}.issuperset(asked) else "A1"
    index = turn.first if turn is not None else before.first
    if older_wording:
        words = (
            f"Did not find {len(missing)} `tool_result` block(s) at the beginning of this message. Messages following "
            "`tool_use` blocks must begin with a matching number of `tool_result` blocks."
        )
        return rejected("A1'", f"messages.{index}: {words}")
    words = (
        f"messages.{index}: `tool_use` ids were found without `tool_result` blocks immediately after: "
        f"{', '.join(missing)}. "
        "Each `tool_use` block must have a corresponding `tool_result` block in the next message."
    )
    return rejected(rule, words)


def _duplicate_use(turn: Turn, known: set[str]) -> Violation | None:
    """An id twice in one turn is refused; in two turns nobody has confirmed it."""
    seen: set[str] = set()
    for block in turn.of("tool_use"):
        call_id = block.id_at("id")
        if call_id in seen or call_id in known:
            return rejected("A5", f"{block.where}: `tool_use` ids must be unique", sure=call_id in seen)
        seen.add(call_id)
    return None


def server_violation(turns: list[Turn]) -> Violation | None:
    """Return the first call of a tool that the provider executes without its result, or the other way round."""
    used: dict[str, tuple[int, Block]] = {}
    answered: set[str] = set()
    for place, turn in enumerate(turns):
        for block in turn.blocks:
            if block.kind in SERVER_CALLS:
                used[block.id_at("id")] = (place, block)
            elif block.kind.endswith("_tool_result"):
                call_id = block.id_at("tool_use_id")
                if call_id not in used:
                    return _orphan_server_result(block, call_id)
                answered.add(call_id)
    for call_id, (place, block) in used.items():
        if call_id not in answered and not _only_results(turns[place + 1 :]):
            name = block.block.get("name")
            words = (
                f"`{name}` tool use with id `{call_id}` was found without a corresponding `{name}_tool_result` block"
            )
            return rejected("A19" if turns[place].of("tool_use") else "A17", f"{block.where}: {words}")
    return None


def _orphan_server_result(block: Block, call_id: str) -> Violation:
    words = (
        f"{block.where}: unexpected `tool_use_id` found in `{block.kind}` blocks: {call_id}. Each `{block.kind}` block "
        "must have a corresponding `server_tool_use` block before it."
    )
    return rejected("A18", words)


def _only_results(turns: list[Turn]) -> bool:
    return all(block.kind == "tool_result" for turn in turns for block in turn.blocks)


def undeclared_violation(body: Body, turns: list[Turn], *, tools_required: bool) -> Violation | None:
    """Return the first use of a tool that had to be declared (A20), or any use without tools where they must be (A21).

    The client's own tools need not be declared (A22).
    """
    blocks = [block for turn in turns for block in turn.blocks]
    if tools_required and not body.get("tools") and any(block.kind in ("tool_use", "tool_result") for block in blocks):
        return rejected("A21", "Requests which include `tool_use` or `tool_result` blocks must define tools.")
    declared = _declared_names(body, blocks)
    answered = {block.id_at("tool_use_id") for block in blocks if block.kind.endswith("_tool_result")}
    for block in blocks:
        name = _declaration_of(block, answered)
        if name is not None and not _is_declared(name, declared):
            return _undeclared(block, name)
    return None


def _declared_names(body: Body, blocks: list[Block]) -> set[str]:
    """The names in `tools`, and those of tools that were defined on the way."""
    added = [fields(fields(block.block.get("tool")).get("definition")) for block in blocks]
    return {text(tool.get("name")) for tool in [*objects(body.get("tools")), *added]} - {""}


def _is_declared(name: str, declared: set[str]) -> bool:
    """A tool may lend its name to several: ``code_execution`` to ``bash_code_execution``."""
    return name in declared or any(name.endswith(f"_{known}") for known in declared)


def _undeclared(block: Block, name: str) -> Violation:
    if block.kind in ("tool_addition", "tool_removal"):
        return rejected("A20", f"{block.where}: tool_addition/tool_removal references unknown tool '{name}'")
    return rejected("A20", f"{block.where}: `{name}` is used here, but is not declared in `tools`")


def _declaration_of(block: Block, answered: set[str]) -> str | None:
    """The name of the tool that must be declared because of this block."""
    match block.kind:
        case "server_tool_use" if block.id_at("id") not in answered or block.block.get("name") == "advisor":
            return text(block.block.get("name"))
        case "advisor_tool_result":
            return "advisor"
        case "tool_addition" | "tool_removal":
            tool = fields(block.block.get("tool"))
            return text(tool.get("name")) if tool.get("type") == "tool_reference" else None
        case "tool_result":
            named = [part for part in objects(block.block.get("content")) if part.get("type") == "tool_reference"]
            return text(named[0].get("tool_name")) if named else None
        case _:
            return None
