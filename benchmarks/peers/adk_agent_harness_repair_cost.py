"""The repair of adk-agent-harness, on contents of google.genai; see `repair_times`."""

from __future__ import annotations

from adk_agent_harness.tool_call_repair import repair_dangling_tool_calls
from google.genai import types
from repair_times import report


def content(kind: str, call_id: str) -> types.Content:
    match kind:
        case "call":
            part = types.Part(function_call=types.FunctionCall(id=call_id, name="f", args={}))
        case "result":
            part = types.Part(function_response=types.FunctionResponse(id=call_id, name="f", response={"x": 1}))
        case _:
            part = types.Part(text="hi")
    return types.Content(role="model" if kind in ("call", "answer") else "user", parts=[part])


if __name__ == "__main__":
    report("adk-agent-harness, contents", content, repair_dangling_tool_calls)
