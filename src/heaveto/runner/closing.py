"""The end of a runner: what runs is stopped or handed over, written down, and everything that is open is closed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TypeVar

from heaveto.agents.llm import LlmAgent
from heaveto.models.base import Model
from heaveto.runner.application.app import App
from heaveto.runner.application.config import RunConfig
from heaveto.runner.lanes import Lanes
from heaveto.runner.services import Services, logger
from heaveto.tools.toolset import Toolset

_T = TypeVar("_T")


async def close_all(lanes: Lanes) -> None:
    """Stop what runs (cause ``shutdown``), wait for its endings, close toolsets, models and the store."""
    services, hands_over = lanes.services, lanes.services.app.on_shutdown == "hand_over"
    services.closed = True
    open_lanes = lanes.all()
    for lane in open_lanes:
        lane.log.notify()  # it may be waiting for a session that another worker holds
    live = [lane.live for lane in open_lanes if lane.live is not None]
    if hands_over:
        for run in live:
            run.stop_locally("shutdown")  # not recorded: a stop would be final
    else:
        await asyncio.gather(*(run.request_stop("shutdown", "runner", "the runner is closing") for run in live))
    await asyncio.gather(*(lane.drained() for lane in open_lanes))
    for lane in open_lanes:
        lane.log.notify()  # who waits for a run that is not over waits in vain
    for call in tuple(services.background_calls.values()):
        if not (call.child_run and hands_over):
            call.cut("shutdown")
    await _drain_background(services)
    for task in tuple(services.listening):
        task.cancel()
    await _close_pieces(services.app)
    await services.store.aclose()


async def _drain_background(services: Services) -> None:
    """Let short background work end; what a straggler still does is lost with the process, as its log says."""
    pending = {task for task in services.background if not task.done()}
    if pending:
        _, late = await asyncio.wait(pending, timeout=RunConfig().cancel_grace_seconds)
        for task in late:
            logger.warning("still running when the runner closed: %s", task.get_name())


async def _close_pieces(app: App) -> None:
    """Close every toolset and every model once; what one of them raises does not keep the others open."""
    agents = [agent for agent in app.root_agent.walk() if isinstance(agent, LlmAgent)]
    toolsets = [toolset for agent in agents for toolset in agent.toolsets]
    models = [agent.model for agent in agents]
    if app.compaction is not None and app.compaction.model is not None:
        models.insert(0, app.compaction.model)
    for toolset in _each_once(toolsets):
        await _close_piece(toolset, f"toolset {toolset!r}")
    for model in _each_once(models):
        await _close_piece(model, f"model {model.name}")


def _each_once(pieces: Iterable[_T]) -> Iterable[_T]:
    return {id(piece): piece for piece in pieces}.values()


async def _close_piece(piece: Model | Toolset, name: str) -> None:
    try:
        await piece.aclose()
    except Exception:  # noqa: BLE001 - closing goes on
        logger.exception("%s could not be closed", name)
