"""One answer to a waiting call of heaveto; see `peers/pauses.py`. Beside it, on SQLite, bare commits."""

from __future__ import annotations

import asyncio
import statistics
import time
from pathlib import Path

from bare_sqlite import BareCommits
from fakes import NotingModel
from ours import answer, make_store, open_runner_for, wait_for_question, waiting_tool
from peers.pauses import PausePlan, plan_from_arguments, report, time_answers

COMMITS = 3
"""The answer, the next attempt of the run, and the result of the call are durable before the model is asked."""


async def main(plan: PausePlan) -> None:
    directory = str(Path(plan.path("x")).parent)
    bare, commits = BareCommits(directory), list[float]()
    model = NotingModel()
    async with open_runner_for(waiting_tool(), model, make_store(plan.store, directory)) as runner:

        async def answered(session: str) -> float:
            run, call_id = await wait_for_question(runner, session)
            begun = time.perf_counter()
            await answer(runner, run, call_id)
            await run.wait()
            commits.append(bare.turn(COMMITS))
            return model.asked_at - begun

        times = await time_answers(plan.rounds, answered)
    bare.close()
    beside = {"commits": statistics.median(commits)} if plan.store == "sqlite" else {}
    report(plan, "heaveto", times, **beside)


if __name__ == "__main__":
    asyncio.run(main(plan_from_arguments()))
