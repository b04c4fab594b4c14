"""A refund that a person must approve: asked for in one process, approved in another, which is killed; paid once.

    python examples/gated_refund.py

The model is scripted, so that no key is needed. The bank is a web service of its own on this machine. It knows
idempotency keys, as real payment services do, and keeps its own books.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from heaveto import FunctionTool, LlmAgent, Runner, SqliteStore, ToolContext
from heaveto.testing import ScriptedModel, call, say
from heaveto.testing.script import Step

STORE = Path("gated_refund.db")
BANK = os.environ.get("BANK", "")
HERE: dict[str, Any] = {"user_id": "al", "session_id": "s1"}
KILL = getattr(signal, "SIGKILL", signal.SIGTERM)  # Windows knows only the latter, and kills with it


def refund_order(order: int, amount: int, ctx: ToolContext) -> str:
    """Pay an order back."""
    body = json.dumps({"order": order, "amount": amount}).encode()
    urlopen(Request(BANK, body, {"Idempotency-Key": ctx.idempotency_key}), timeout=10).close()
    if ctx.attempt == 1:
        os.kill(os.getpid(), KILL)  # the bank has paid, and nobody has written it down
    return f"{amount} are paid back for order {order}"


refund = FunctionTool(
    refund_order,
    require_confirmation=True,  # it is not executed before somebody says yes
    replay="idempotent",  # after a crash it may be executed again with the same key
)


def open_runner(*script: Step) -> Runner:
    """Return a runner on the one store, with a model that plays a script."""
    return Runner(LlmAgent("shop", ScriptedModel(*script), tools=[refund]), store=SqliteStore(STORE))


async def ask() -> None:
    """The first process: the model wants to pay, the run waits for a yes, and the process is free to end."""
    async with open_runner(call("refund_order", order=7, amount=10)) as runner:
        run = await runner.start(new_message="Refund order 7.", **HERE)
        await run.ending_or_pause()
        print(f"The run is {run.status}; the process ends.")


async def approve() -> None:
    """The second process: a person sees the question and says yes, to a smaller amount. It dies in mid-payment."""
    async with open_runner(say("never said")) as runner:
        (question,) = await runner.questions(**HERE)
        print(f"May {question.tool} run with {question.args}? Yes, but with an amount of 8.", flush=True)
        await runner.answer(question.run_id, question.question_id, args={**question.args, "amount": 8}, by="ann")
        await (await runner.attach(question.run_id)).wait()


async def recover() -> None:
    """The third process: goes on with whatever dead ones left."""
    async with open_runner(say("I paid 8 back for order 7; Ann made it 8.")) as runner:
        (run_id,) = await runner.recover()
        print(await (await runner.attach(run_id)).result())


class Bank(BaseHTTPRequestHandler):
    """Pays once for each key."""

    requests: list[str] = []  # noqa: RUF012 - one bank, one list
    books: dict[str, dict[str, int]] = {}  # noqa: RUF012

    def do_POST(self) -> None:
        key = self.headers["Idempotency-Key"]
        self.requests.append(key)
        self.books.setdefault(key, json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


def main() -> None:
    """The bank, and the three processes one after another."""
    for file in Path().glob(f"{STORE}*"):
        file.unlink()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Bank)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    environment = {**os.environ, "BANK": f"http://127.0.0.1:{server.server_address[1]}/payments"}
    for step in ("ask", "approve", "recover"):
        done = subprocess.run([sys.executable, __file__, step], env=environment, check=False)
        if done.returncode:
            print(f"The process was killed ({done.returncode}).", flush=True)
    print(f"The bank was asked {len(Bank.requests)} times and has paid: {list(Bank.books.values())}")
    server.shutdown()
    server.server_close()


if __name__ == "__main__":
    steps = {"ask": ask, "approve": approve, "recover": recover}
    if len(sys.argv) > 1:
        asyncio.run(steps[sys.argv[1]]())
    else:
        main()
