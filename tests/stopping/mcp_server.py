"""An MCP server over stdio with one tool; asked to hold, it takes no notice of a cancellation, and answers when a file
says that it may."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

SCHEMA = {
    "type": "object",
    "properties": {"hold": {"type": "boolean"}, "pids": {"type": "string"}},
    "required": ["hold", "pids"],
}


def say(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def call(ident: Any, hold: bool, pids: str, token: Any) -> None:
    if not hold:
        say(id=ident, result={"content": [{"type": "text", "text": "done"}]})
        return
    Path(pids).write_text(str(os.getpid()))
    say(method="notifications/progress", params={"progressToken": token, "progress": 1, "message": "begun"})
    threading.Thread(target=answer_late, args=(ident, Path(pids + ".go")), daemon=True).start()


def answer_late(ident: Any, go: Path) -> None:
    while not go.exists():
        time.sleep(0.005)
    say(id=ident, result={"content": [{"type": "text", "text": "done"}]})


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        params, ident = message.get("params", {}), message.get("id")
        match message.get("method"):
            case "initialize":
                server = {"name": "held", "version": "1"}
                say(
                    id=ident,
                    result={"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": server},
                )
            case "tools/list":
                say(id=ident, result={"tools": [{"name": "mcp", "description": "Work.", "inputSchema": SCHEMA}]})
            case "tools/call":
                call(ident, **params["arguments"], token=params.get("_meta", {}).get("progressToken"))
            case method if method is not None and ident is not None:
                say(id=ident, error={"code": -32601, "message": "Method not found"})
            case _:
                pass


if __name__ == "__main__":
    main()
