"""One turn of heaveto: two model calls and one tool, a model without latency; on SQLite beside four bare commits."""

from __future__ import annotations

import asyncio

from bare_sqlite import BareCommits
from fakes import InstantModel
from ours import count_records, make_store, open_runner, take_turn
from peers.measure import Plan, plan_from_arguments, report, time_turns


async def main(plan: Plan) -> None:
    directory = plan.fresh_directory()
    store = make_store(plan.store, directory)
    bare = BareCommits(directory)
    times: list[float] = []
    bare_times: list[float] = []
    async with open_runner(InstantModel(), store) as runner:
        for _ in range(plan.turns):
            times += await time_turns(1, lambda: take_turn(runner, "s"))
            if plan.store == "sqlite":
                bare_times.append(bare.turn())
        records = await count_records(store, "s")
    bare.close()
    report(plan, "heaveto", records, times, bare_times)


if __name__ == "__main__":
    asyncio.run(main(plan_from_arguments(["memory", "sqlite"])))
