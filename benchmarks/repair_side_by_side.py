"""What five frameworks and we send after an interruption, side by side: is it accepted, and is all of it there?

    python benchmarks/repair_side_by_side.py [--only heaveto google-adk] [--markdown]

Each program is asked to go on from each of the broken histories of `peers/shapes.py`, with its own repair on and its
client, over HTTP. A server on loopback judges each request as the provider would, by the rules that public reports
confirm (`heaveto.testing.Emulator`); what arrived is then compared with the history.

A cell says what came of it:
    ok          accepted, with every text of the user, every real result, and every call
    call gone   accepted, but a call that the model made is not told any more: it may make it again
    LOST        accepted, but a result that a tool returned, or a text of the user, is not there
    400 RULE    refused
    error       no request: the program raised
    -           the format has no such history
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "peers")]

from peers_env import ensure_peers  # noqa: E402
from shapes import SHAPES, Item, Shape, calls_of, texts_of, values_of  # noqa: E402
from wire_of_shapes import (  # noqa: E402
    Body,
    anthropic_messages,
    chat_messages,
    gemini_contents,
    responses_items,
)

from heaveto import repair  # noqa: E402
from heaveto.testing import EmulatorThread, say  # noqa: E402
from heaveto.testing.emulator import Exchange  # noqa: E402

OURS: Mapping[str, tuple[str, Callable[[tuple[Item, ...]], list[Body]], str, Body]] = {
    "openai": ("messages", chat_messages, "/v1/chat/completions", {"model": "gpt-4o"}),
    "openai-responses": ("input", responses_items, "/v1/responses", {"model": "gpt-4o"}),
    "anthropic": ("messages", anthropic_messages, "/v1/messages", {"model": "claude-sonnet-4-5", "max_tokens": 99}),
    "gemini": ("contents", gemini_contents, "/v1beta/models/gemini-2.5-flash:generateContent", {}),
}
PEERS: Mapping[str, tuple[str, str, str]] = {
    "google-adk": ("google_adk_repair.py", "bare", "gemini"),
    "google-adk + adk-agent-harness": ("google_adk_repair.py", "harness", "gemini"),
    "google-adk + heaveto.adk": ("google_adk_repair.py", "heaveto", "gemini"),
    "adk-agent-harness alone": ("google_adk_repair.py", "function", "gemini"),
    "deepagents": ("deepagents_repair.py", "openai", "openai"),
    "deepagents, Anthropic": ("deepagents_repair.py", "anthropic", "anthropic"),
    "pydantic-ai": ("pydantic_ai_repair.py", "openai", "openai"),
    "pydantic-ai, Anthropic": ("pydantic_ai_repair.py", "anthropic", "anthropic"),
    "LiteLLM": ("litellm_repair.py", "openai", "openai"),
    "LiteLLM, Anthropic": ("litellm_repair.py", "anthropic", "anthropic"),
}
Column = dict[str, str]


def ours(api: str) -> Column:
    """Repair each history with `heaveto.repair`, send it, and say what came of it."""
    key, wire, path, more = OURS[api]
    column: Column = {}
    with EmulatorThread(say("Well."), strict=False) as server:
        for shape in SHAPES:
            if not shape.ids and api != "gemini":
                continue
            history, _ = repair(wire(shape.items), provider=api)
            _post(server.google_url + path, {**more, key: history})
            column[shape.name] = verdict(shape, server.emulator.exchanges, "")
    return column


def _post(url: str, body: Body) -> None:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request):
            pass
    except urllib.error.HTTPError:
        pass  # the server has noted why


def peer(name: str) -> Column:
    """Let a peer play all histories in a process of its own, and say what came of each."""
    program, how, _ = PEERS[name]
    with EmulatorThread(say("Well."), strict=False) as server:
        command = [str(ensure_peers()), str(HERE / "peers" / program), how, server.google_url]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=_environment())
        if done.returncode:
            print(f"{name} failed: {(done.stderr.strip().splitlines() or ['?'])[-1]}", file=sys.stderr)
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"shape"')]
        errors = {line["shape"]: line["error"] for line in lines}
        played = [shape for shape in SHAPES if shape.name in errors]
        return {shape.name: verdict(shape, server.emulator.exchanges, errors[shape.name]) for shape in played}


def _environment() -> dict[str, str]:
    import os

    quiet = {"PYTHONWARNINGS": "ignore", "GOOGLE_API_KEY": "none", "OTEL_SDK_DISABLED": "true", "NO_PROXY": "127.0.0.1"}
    ours = str(HERE.parent / "src")  # for our plugin in google-adk
    return {
        **os.environ,
        **quiet,
        "PYTHONPATH": ours,
        "LANGSMITH_TRACING": "false",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }


def verdict(shape: Shape, exchanges: Sequence[Exchange], error: str) -> str:
    """Say what came of a history; its last text names it."""
    sent = [exchange for exchange in exchanges if shape.new in json.dumps(exchange.body)]
    if not sent:
        return f"error ({error.partition(':')[0]})" if error else "error (nothing was sent)"
    first = sent[0]
    if first.violation is not None:
        return f"400 {first.violation.rule}"
    text = json.dumps(first.body)
    missing = [words for words in (*texts_of(shape), *values_of(shape)) if words not in text]
    if missing:
        return f"LOST {', '.join(missing)}"
    return "ok" if _calls_in(first.body) >= calls_of(shape) else "call gone"


def _calls_in(value: Any) -> int:
    """Count the calls in a request body of any of the APIs."""
    if isinstance(value, list):
        return sum(map(_calls_in, value))
    if not isinstance(value, dict):
        return 0
    if value.get("type") in ("tool_use", "function_call") or "functionCall" in value:
        return 1
    if "tool_calls" in value:
        return len(value["tool_calls"] or ())
    return sum(_calls_in(inner) for key, inner in value.items() if key not in ("tools", "tool_config"))


def table(columns: Mapping[str, Column], *, markdown: bool) -> str:
    """Return one row for each history, and the share that went well in the last."""
    head = ["", *columns]
    rows = [
        [f"{shape.name} {shape.what}", *(column.get(shape.name, "-") for column in columns.values())]
        for shape in SHAPES
    ]
    well = [f"{sum(cell == 'ok' for cell in column.values())} of {len(column)}" for column in columns.values()]
    lines = [head, *rows, ["ok", *well]]
    if markdown:
        marked = ["| " + " | ".join(line) + " |" for line in lines]
        return "\n".join([marked[0], "|---" * len(head) + "|", *marked[1:]])
    widths = [max(len(line[place]) for line in lines) for place in range(len(head))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


def main() -> None:
    """Run the programs and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", help="the programs whose name begins with one of these")
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    columns: dict[str, Column] = {f"heaveto, {api}": {} for api in OURS} | {name: {} for name in PEERS}
    if options.only:
        columns = {name: {} for name in columns if name.startswith(tuple(options.only))}
    for name in columns:
        columns[name] = ours(name.removeprefix("heaveto, ")) if name.startswith("heaveto") else peer(name)
    print(table(columns, markdown=options.markdown))


if __name__ == "__main__":
    main()
