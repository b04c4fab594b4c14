"""From what a tool returned to what the log holds: a JSON object, or, where that is large, the name of an artifact.

Also what becomes known of a call behind its settlement.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from heaveto.core.failure import message_of
from heaveto.errors import SessionErasedError, StoreClosedError, StoreError
from heaveto.events.contents import Blob, Json
from heaveto.events.records import CallSettled
from heaveto.runner.run.calls.attempt import Attempt
from heaveto.runner.run.live import LiveRun
from heaveto.runner.services import logger
from heaveto.runner.session.late import PATIENCE, record_late
from heaveto.runner.tasks.detached import to_its_end
from heaveto.tools.base import Tool
from heaveto.tools.response import to_response

_PREVIEW_CHARACTERS = 1_000


async def recorded_result(value: Any, tool: Tool, call_id: str, live: LiveRun) -> dict[str, Json]:
    """Return a result as it is recorded and told to the model.

    One that is larger than `max_result_bytes` is stored as an artifact, and a stub with a preview stands for it.

    Raises:
        NotSerializableError: JSON cannot say it.
    """
    response = to_response(value)
    limit = live.config.max_result_bytes if tool.max_result_bytes is None else tool.max_result_bytes
    if limit is None or _is_surely_small(response, limit):
        return response
    encoded = msgspec.json.encode(response)
    if len(encoded) <= limit:
        return response
    return await _stored(response, encoded, tool.name, call_id, live)


def _is_surely_small(response: dict[str, Json], limit: int) -> bool:
    """Whether a flat result cannot be too large; so that the usual one is not encoded only to be measured."""
    room = limit
    for key, value in response.items():
        if isinstance(value, (dict, list)):
            return False
        room -= 12 * len(key) + (6 * len(value) if isinstance(value, str) else 32)
    return room > 0


async def _stored(response: dict[str, Json], encoded: bytes, name: str, call_id: str, live: LiveRun) -> dict[str, Json]:
    only = response.get("result") if len(response) == 1 else None
    if isinstance(only, str):
        text, artifact = only, f"{name}-{call_id}.txt"
        blob = Blob(mime_type="text/plain; charset=utf-8", content=only.encode())
    else:
        text, artifact = encoded.decode(), f"{name}-{call_id}.json"
        blob = Blob(mime_type="application/json", content=encoded)
    stub: dict[str, Json] = {"size_bytes": len(blob.content), "preview": text[:_PREVIEW_CHARACTERS]}
    try:
        # The tool has finished, so its result is kept (P4), although its call may be stopped meanwhile.
        version = await to_its_end(live.services.artifacts.save(live.key, artifact, blob, id=call_id))
    except Exception as error:  # noqa: BLE001 - an edge: whatever the artifact service raises, the tool ran
        logger.exception("the result of call %s could not be stored", call_id)
        return {
            "error": f"The tool ran, but its result is too large, and storing it failed: {message_of(error)}",
            **stub,
        }
    note = "The result is too large to be told here. The whole of it is stored as this artifact."
    return {"artifact": artifact, "version": version, "note": note, **stub}


async def record_aftermath(live: LiveRun, attempt: Attempt, settled: CallSettled) -> None:
    """Record from the side what became of the call, which was settled before; it is told at the next chance."""
    if live.sealing:
        await live.finished.wait()
    late = replace(settled, late=True)
    try:
        changes = attempt.state_changes()
        if await record_late(live.services, live.log, late, changes, pauses=PATIENCE):
            live.services.kick(live.key)
    except StoreClosedError:
        told = "call %s of %s ended after its runner was closed: what became of it is not recorded"
        logger.warning(told, late.call_id, late.name)
    except SessionErasedError:
        pass  # there is nothing left that it could stand in
    except StoreError:
        logger.exception("what became of call %s of %s could not be recorded", late.call_id, late.name)
