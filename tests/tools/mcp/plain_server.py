"""An MCP server without an SDK, over stdio: it does what no well-made server does, and tells a witness what it reads.

Speaks version 2025-11-25. Its first argument is the port of the witness; without one it tells nobody.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from typing import Any

PNG = "iVBORw0KGgo="
NOTHING: dict[str, Any] = {"type": "object", "properties": {}}
TOOLS: dict[str, dict[str, Any]] = {
    "echo": {
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
        "annotations": {"readOnlyHint": True},
    },
    "hang": {"inputSchema": NOTHING},
    "answer_when_cancelled": {"inputSchema": NOTHING, "annotations": {"idempotentHint": True}},
    "answer_on_release": {"inputSchema": NOTHING},
    "release": {"inputSchema": NOTHING},
    "die": {"inputSchema": NOTHING},
    "count": {"inputSchema": {"type": "object", "properties": {"to": {"type": "integer"}}, "required": ["to"]}},
    "ask": {"inputSchema": NOTHING},
    "ask_twice": {"inputSchema": NOTHING},
    "ask_and_withdraw": {"inputSchema": NOTHING},
    "sample": {"inputSchema": NOTHING},
    "visit": {"inputSchema": NOTHING},
    "learn": {"inputSchema": NOTHING},
    "fail": {"inputSchema": NOTHING},
    "refuse": {"inputSchema": NOTHING},
    "picture": {"inputSchema": NOTHING},
    "spawn": {"inputSchema": NOTHING},
    "complain": {"inputSchema": NOTHING},
    "a.b/c": {"inputSchema": NOTHING},
    "a_b_c": {"inputSchema": NOTHING},
}
PAGE = 5


class Server:
    def __init__(self, witness: socket.socket | None) -> None:
        self.witness = witness
        self.lock = threading.Lock()
        self.open: dict[str, list[Any]] = {}
        self.asked: dict[str, Any] = {}
        self.visited = False

    def say(self, **message: Any) -> None:
        with self.lock:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            sys.stdout.flush()

    def answer(self, call: Any, **result: Any) -> None:
        self.say(id=call, result=result)

    def text(self, call: Any, text: str) -> None:
        self.answer(call, content=[{"type": "text", "text": text}])

    def read(self, line: str) -> None:
        if self.witness is not None:
            self.witness.sendall(line.encode())
        message = json.loads(line)
        method, params, ident = message.get("method"), message.get("params", {}), message.get("id")
        if method == "initialize":
            self.answer(
                ident,
                protocolVersion="2025-11-25",
                capabilities={"tools": {"listChanged": True}, "logging": {}},
                serverInfo={"name": "plain", "version": "1"},
            )
        elif method == "tools/list":
            self.list(ident, int(params.get("cursor", 0)))
        elif method == "tools/call":
            self.call(ident, params["name"], params.get("arguments", {}), params.get("_meta", {}))
        elif method == "notifications/cancelled":
            self.cancelled(params["requestId"])
        elif method is None and ident in self.asked:
            self.answered(ident, message.get("result", message.get("error")))
        elif ident is not None and method is not None:
            self.say(id=ident, error={"code": -32601, "message": "Method not found"})

    def answered(self, question: str, reply: Any) -> None:
        call = self.asked.pop(question)
        if call in self.open.get("ask_twice", ()) and not question.endswith("again"):
            self.put(call, "ask_twice", "again")
        else:
            self.text(call, json.dumps(reply))

    def list(self, ident: Any, start: int) -> None:
        names = list(TOOLS)
        page = [{"name": name, "description": f"It can {name}.", **TOOLS[name]} for name in names[start : start + PAGE]]
        more = {"nextCursor": str(start + PAGE)} if start + PAGE < len(names) else {}
        self.answer(ident, tools=page, **more)

    def cancelled(self, ident: Any) -> None:
        if ident in self.open.get("answer_when_cancelled", ()):
            self.text(ident, "done all the same")

    def call(self, ident: Any, name: str, args: dict[str, Any], meta: dict[str, Any]) -> None:
        self.open.setdefault(name, []).append(ident)
        match name:
            case "echo":
                self.text(ident, args["text"])
            case "release":
                for call in self.open.pop("answer_on_release", []):
                    self.text(call, "late")
                self.text(ident, "released")
            case "die":
                os._exit(3)
            case "count":
                for step in range(1, args["to"] + 1):
                    progress = {"progress": step, "total": args["to"], "message": f"step {step}"}
                    self.say(
                        method="notifications/progress", params={"progressToken": meta["progressToken"], **progress}
                    )
                self.text(ident, "counted")
            case "ask" | "ask_twice" | "ask_and_withdraw" | "sample":
                self.put(ident, name)
            case "visit":
                self.visit(ident)
            case "learn":
                TOOLS["learnt"] = {"inputSchema": NOTHING}
                self.say(method="notifications/tools/list_changed")
                self.text(ident, "learnt it")
            case "fail":
                self.answer(ident, content=[{"type": "text", "text": "no such table"}], isError=True)
            case "refuse":
                self.say(id=ident, error={"code": -32000, "message": "try another day"})
            case "picture":
                self.answer(
                    ident,
                    content=[
                        {"type": "text", "text": "a dot"},
                        {"type": "image", "data": PNG, "mimeType": "image/png"},
                        {"type": "resource", "resource": {"uri": "note://1", "text": "see above"}},
                    ],
                )
            case "spawn":
                child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
                self.text(ident, str(child.pid))
            case "complain":
                print("it is cold in here", file=sys.stderr, flush=True)
                self.say(method="notifications/message", params={"level": "warning", "data": "brr", "logger": "heat"})
                self.text(ident, "complained")
            case _:
                pass

    def put(self, ident: Any, name: str, which: str = "") -> None:
        question = f"q{ident}{which}"
        self.asked[question] = ident
        if name == "sample":
            self.say(id=question, method="sampling/createMessage", params={"messages": [], "maxTokens": 1})
            return
        schema = {"type": "object", "properties": {"size": {"type": "integer"}}, "required": ["size"]}
        self.say(id=question, method="elicitation/create", params={"message": "How big?", "requestedSchema": schema})
        if name == "ask_and_withdraw":
            self.say(method="notifications/cancelled", params={"requestId": question})
            self.text(ident, "never mind")

    def visit(self, ident: Any) -> None:
        if self.visited:
            self.text(ident, "let in")
            return
        self.visited = True
        page = {"mode": "url", "message": "Log in.", "url": "https://example.com/login", "elicitationId": "1"}
        self.say(id=ident, error={"code": -32042, "message": "log in first", "data": {"elicitations": [page]}})


def main() -> None:
    witness = socket.create_connection(("127.0.0.1", int(sys.argv[1]))) if len(sys.argv) > 1 else None
    server = Server(witness)
    for line in sys.stdin:
        server.read(line)


if __name__ == "__main__":
    main()
