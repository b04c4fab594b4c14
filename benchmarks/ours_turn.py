"""One turn of heaveto: two model calls and one tool, a model without latency; on SQLite beside four bare commits.

And beside the least program that writes the same rows from a thread of its own.
"""

from __future__ import annotations

import asyncio

from bare_sqlite import BareCommits, SameRows
from fakes import InstantModel
from ours import count_records, make_store, open_runner, take_turn
from peers.measure import Plan, plan_from_arguments, report, time_turns


async def main(plan: Plan) -> None:
    directory = plan.fresh_directory()
    store = make_store(plan.store, directory)
    bare, least = BareCommits(directory), SameRows(directory)
    times: list[float] = []
    beside: dict[str, list[float]] = {"bare_ms": [], "least_ms": []} if plan.store == "sqlite" else {}
    async with open_runner(InstantModel(), store) as runner:
        for _ in range(plan.turns):
            times += await time_turns(1, lambda: take_turn(runner, "s"))
            if beside:
                beside["bare_ms"].append(bare.turn())
                beside["least_ms"].append(await least.turn())
        records = await count_records(store, "s")
    bare.close()
    least.close()
    report(plan, "heaveto", records, times, beside)


if __name__ == "__main__":
    asyncio.run(main(plan_from_arguments(["memory", "sqlite"])))
