"""A payment service of its own, over HTTP on this machine: it knows each payment by its key, and keeps a log."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen


class PaymentService:
    """What the service has seen and done.

    Attributes:
        requests: method and key of each request, in order.
        payments: receipts of the payments that were made, by key.
        is_blind: it fails to say which payments there were.
    """

    def __init__(self) -> None:
        self.requests: list[tuple[str, str]] = []
        self.payments: dict[str, dict[str, Any]] = {}
        self.is_blind = False
        self.url = ""

    def take(self, key: str, order: dict[str, Any]) -> dict[str, Any]:
        if key not in self.payments:
            self.payments[key] = {"receipt": len(self.payments) + 1, **order}
        return self.payments[key]


@contextmanager
def payment_service() -> Iterator[PaymentService]:
    """Serve on a free port of this machine."""
    service = PaymentService()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(service))
    service.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _handler(service: PaymentService) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            key = self.headers["Idempotency-Key"]
            service.requests.append(("POST", key))
            self._answer(200, service.take(key, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))

        def do_GET(self) -> None:
            key = self.path.removeprefix("/payments/")
            service.requests.append(("GET", key))
            if service.is_blind:
                self._answer(500, {"error": "the index is being rebuilt"})
            else:
                self._answer(200 if key in service.payments else 404, service.payments.get(key, {}))

        def _answer(self, status: int, body: dict[str, Any]) -> None:
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler


def pay_at(url: str, key: str, amount: int) -> dict[str, Any]:
    """Pay: a request under this key."""
    body = json.dumps({"amount": amount}).encode()
    request = Request(f"{url}/payments", data=body, headers={"Idempotency-Key": key}, method="POST")
    with urlopen(request, timeout=10) as answer:
        receipt: dict[str, Any] = json.load(answer)
        return receipt


def payment_at(url: str, key: str) -> dict[str, Any] | None:
    """Return the receipt of the payment under this key, or None if there was none.

    Raises:
        HTTPError: the service cannot tell.
    """
    try:
        with urlopen(f"{url}/payments/{key}", timeout=10) as answer:
            receipt: dict[str, Any] = json.load(answer)
            return receipt
    except HTTPError as error:
        error.close()
        if error.code == 404:
            return None
        raise
