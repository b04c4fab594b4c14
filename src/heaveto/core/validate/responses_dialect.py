"""The items of Responses, and how the servers that speak it differ: words, envelope, adjacency, as data."""

from __future__ import annotations

import msgspec

from heaveto.core.validate.violation import Body, Violation, text


class Kind(msgspec.Struct, frozen=True):
    """A kind of call and its result. `named` is how errors call it."""

    call: str
    output: str
    named: str
    rule: str = "R2"


KINDS = (
    Kind("function_call", "function_call_output", "function call", rule="R1"),
    Kind("custom_tool_call", "custom_tool_call_output", "custom tool call"),
    Kind("apply_patch_call", "apply_patch_call_output", "apply patch call"),
    Kind("tool_search_call", "tool_search_output", "tool search call"),
    Kind("local_shell_call", "local_shell_call_output", "local shell call"),
    Kind("shell_call", "shell_call_output", "shell call"),
    Kind("computer_call", "computer_call_output", "computer call"),
)
CALLS = {kind.call: kind for kind in KINDS}
OUTPUTS = {kind.output: kind for kind in KINDS}


class Dialect(msgspec.Struct, frozen=True):
    """A server's way with Responses: `adjacent` means that results come right behind the calls."""

    name: str
    param: str = "input"
    code: str | None = None
    adjacent: bool = False
    unanswered: str = "No tool output found for {named} {id}."

    def rejected(
        self, rule: str, message: str, param: str | None = None, code: str | None = None, *, sure: bool = True
    ) -> Violation:
        """Return the server's ``invalid_request_error``; `param` and `code` are those of this server unless given."""
        place = {"param": param or self.param, "code": code or self.code}
        error = {"message": message, "type": "invalid_request_error", **place}
        return Violation(rule, 400, {"error": error}, unconfirmed=not sure)


OPENAI_RESPONSES = Dialect("openai-responses")
DEEPSEEK_RESPONSES = Dialect(
    "deepseek-responses",
    param="",
    code="invalid_request_error",
    adjacent=True,
    unanswered="No tool output found for tool call {id}.",
)


def kind_of(item: Body) -> str:
    """Return the type of an item."""
    return text(item.get("type"))


def call_id_of(item: Body) -> str:
    """Return the id that joins a call and its result; results of the local shell have it as their own."""
    return text(item.get("call_id")) or (text(item.get("id")) if kind_of(item) == "local_shell_call_output" else "")


def is_open(item: Body) -> bool:
    """Whether an item is a call that the client must answer: the provider executes some itself."""
    return kind_of(item) in CALLS and item.get("execution") != "server"
