"""What OpenAI's APIs have in common: their error bodies, and the ids of calls. Pure."""

from __future__ import annotations

from heaveto.testing.emulator.dialects.base import Body, Dialect

_KINDS: dict[int, tuple[str, str | None]] = {
    401: ("invalid_request_error", "invalid_api_key"),
    403: ("invalid_request_error", "unsupported_country_region_territory"),
    429: ("requests", "rate_limit_exceeded"),
    500: ("server_error", None),
    503: ("server_error", "service_unavailable"),
}


class OpenAIDialect(Dialect):
    """One of them."""

    def error(self, status: int, message: str, *, retry_after: float | None = None) -> Body:
        return openai_error(status, message)

    def unknown_model(self, model: str) -> Body:
        return openai_unknown_model(model)

    def call_id(self, number: int) -> str:
        return f"call_{number}"


def openai_error(status: int, message: str, *, param: str | None = None, code: str | None = None) -> Body:
    """Return the error body of a status."""
    kind, usual = _KINDS.get(status, ("server_error" if status >= 500 else "invalid_request_error", None))
    return {"error": {"message": message, "type": kind, "param": param, "code": code or usual}}


def openai_unknown_model(model: str) -> Body:
    """Return the body of the 404 for a model."""
    return openai_error(
        404, f"The model `{model}` does not exist or you do not have access to it.", code="model_not_found"
    )
