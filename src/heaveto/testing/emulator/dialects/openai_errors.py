"""The error bodies of OpenAI's APIs. Pure."""

from __future__ import annotations

from heaveto.testing.emulator.dialects.base import Body

_KINDS: dict[int, tuple[str, str | None]] = {
    401: ("invalid_request_error", "invalid_api_key"),
    403: ("invalid_request_error", "unsupported_country_region_territory"),
    429: ("requests", "rate_limit_exceeded"),
    500: ("server_error", None),
    503: ("server_error", "service_unavailable"),
}


def openai_error(status: int, message: str, *, param: str | None = None, code: str | None = None) -> Body:
    """Return the error body of a status."""
    kind, usual = _KINDS.get(status, ("server_error" if status >= 500 else "invalid_request_error", None))
    return {"error": {"message": message, "type": kind, "param": param, "code": code or usual}}


def openai_unknown_model(model: str) -> Body:
    """Return the body of the 404 for a model."""
    return openai_error(
        404, f"The model `{model}` does not exist or you do not have access to it.", code="model_not_found"
    )
