"""Our repairs, each format in its own shape; see `peers/repair_times.py`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "peers"))

from repair_times import report

from heaveto import Repairer, repair, repair_dangling_tool_calls


def chat(kind: str, call_id: str) -> dict[str, Any]:
    match kind:
        case "call":
            call = {"id": call_id, "type": "function", "function": {"name": "f", "arguments": "{}"}}
            return {"role": "assistant", "content": None, "tool_calls": [call]}
        case "result":
            return {"role": "tool", "tool_call_id": call_id, "content": "x"}
        case _:
            return {"role": "assistant" if kind == "answer" else "user", "content": "hi"}


def claude(kind: str, call_id: str) -> dict[str, Any]:
    match kind:
        case "call":
            block = {"type": "tool_use", "id": call_id, "name": "f", "input": {}}
        case "result":
            block = {"type": "tool_result", "tool_use_id": call_id, "content": "x"}
        case _:
            block = {"type": "text", "text": "hi"}
    return {"role": "assistant" if kind in ("call", "answer") else "user", "content": [block]}


def content(kind: str, call_id: str) -> Any:
    from google.genai import types

    match kind:
        case "call":
            part = types.Part(function_call=types.FunctionCall(id=call_id, name="f", args={}))
        case "result":
            part = types.Part(function_response=types.FunctionResponse(id=call_id, name="f", response={"x": 1}))
        case _:
            part = types.Part(text="hi")
    return types.Content(role="model" if kind in ("call", "answer") else "user", parts=[part])


class Continued:
    """A repairer that has seen all of the history but its last turn."""

    def __init__(self) -> None:
        self.repairer = Repairer("openai")

    def prepare(self, history: list[Any]) -> list[Any]:
        self.repairer.repair(history[:-4])
        return history


def main(what: str) -> None:
    match what:
        case "openai":
            report("heaveto, OpenAI messages", chat, lambda history: repair(history, "openai"))
        case "anthropic":
            report("heaveto, Anthropic messages", claude, lambda history: repair(history, "anthropic"))
        case "contents":
            report("heaveto, contents", content, repair_dangling_tool_calls)
        case "continued":
            continued = Continued()
            report("heaveto, OpenAI, four new", chat, continued.repairer.repair, prepare=continued.prepare)
        case _:
            raise SystemExit(f"unknown: {what}")


if __name__ == "__main__":
    main(sys.argv.pop(1))
