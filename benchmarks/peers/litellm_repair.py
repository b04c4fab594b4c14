"""LiteLLM with its repair on (`modify_params`), over HTTP: ``litellm_repair.py API URL``."""

from __future__ import annotations

import sys

import litellm
from repairing import play
from shapes import Shape
from wire_of_shapes import DECLARED, chat_messages

TOOLS = [{"type": "function", "function": {"name": "pay", "description": "Pay a bill.", "parameters": DECLARED}}]


def main(api: str, url: str) -> None:
    litellm.modify_params = True
    litellm.suppress_debug_info = True
    model, base = ("openai/gpt-4o", f"{url}/v1") if api == "openai" else ("anthropic/claude-sonnet-4-5", url)

    def ask(shape: Shape) -> None:
        litellm.completion(
            model=model, api_base=base, api_key="none", messages=chat_messages(shape.items), tools=TOOLS, num_retries=0
        )

    play(ask)


if __name__ == "__main__":
    main(*sys.argv[1:])
