"""What Gemini's refusals mean: an HTTP error, or an error event in mid-stream. Pure."""

from __future__ import annotations

from typing import Any

from heaveto.errors import ModelError
from heaveto.models.sdk import is_retryable
from heaveto.models.wire.reading import as_object, as_objects, as_text


def refusal(body: object, *, status: int | None = None, retry_after_seconds: float | None = None) -> ModelError:
    """Return the error that a body tells of. Total: a proxy's words are no JSON at all.

    The wait that the body asks for, in its `RetryInfo`, comes before the header's. A quota of the day is final.

    Args:
        body: the decoded body, one within a list included, or its text.
        status: the HTTP status; by default the code in the body.
        retry_after_seconds: the wait that the header asked for.
    """
    fields = (as_objects(body) or [as_object(body)])[0]
    error = as_object(fields.get("error")) or fields
    code = error.get("code")
    status = status if status is not None else code if isinstance(code, int) else None
    details = as_objects(error.get("details"))
    wait = next((seconds for detail in details if (seconds := _wait(detail)) is not None), retry_after_seconds)
    told = error.get("message") or as_text(fields.get("error")) or as_text(body).strip()
    words = told or f"status {status}"
    kind = error.get("status")
    return ModelError(
        f"{words} ({kind})" if isinstance(kind, str) else str(words),
        status=status,
        retryable=(status is None or is_retryable(status)) and not any(map(_is_of_the_day, details)),
        retry_after_seconds=wait,
        body=body,
    )


def _wait(detail: dict[str, Any]) -> float | None:
    """``{"@type": ".../google.rpc.RetryInfo", "retryDelay": "34.5s"}``."""
    try:
        return max(0.0, float(as_text(detail.get("retryDelay")).removesuffix("s")))
    except ValueError:
        return None


def _is_of_the_day(detail: dict[str, Any]) -> bool:
    """``{"@type": ".../google.rpc.QuotaFailure", "violations": [{"quotaId": "GenerateRequestsPerDay..."}]}``."""
    return any("PerDay" in as_text(violation.get("quotaId")) for violation in as_objects(detail.get("violations")))
