"""The items of Responses, and how the servers that speak it differ: words, envelope, adjacency, as data."""

from __future__ import annotations

import msgspec

from heaveto.core.json_values import Body, text
from heaveto.core.validate.violation import Violation
from heaveto.core.wire_kinds import LOCAL_SHELL_OUTPUT, OUTPUT_OF


class Kind(msgspec.Struct, frozen=True):
    """A kind of call and its result. `named` is how errors call it."""

    call: str
    output: str
    named: str
    rule: str


KINDS = tuple(
    Kind(call, output, call.replace("_", " "), "R1" if call == "function_call" else "R2")
    for call, output in OUTPUT_OF.items()
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
    return text(item.get("call_id")) or (text(item.get("id")) if kind_of(item) == LOCAL_SHELL_OUTPUT else "")


def is_open(item: Body) -> bool:
    """Whether an item is a call that the client must answer: the provider executes some itself."""
    return kind_of(item) in CALLS and item.get("execution") != "server"
