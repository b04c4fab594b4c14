"""The repair of pydantic-ai, on its own messages; see `repair_times`."""

from __future__ import annotations

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
    repair_messages,
)
from repair_times import report


def message(kind: str, call_id: str) -> ModelMessage:
    match kind:
        case "call":
            return ModelResponse(parts=[ToolCallPart("f", {}, tool_call_id=call_id)])
        case "result":
            return ModelRequest(parts=[ToolReturnPart("f", "x", tool_call_id=call_id)])
        case "answer":
            return ModelResponse(parts=[TextPart("hi")])
        case _:
            return ModelRequest(parts=[UserPromptPart("hi")])


if __name__ == "__main__":
    report("pydantic-ai, its messages", message, repair_messages)
