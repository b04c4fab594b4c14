"""Another process on a store, for the tests: `python store_process.py COMMAND PATH TTL_SECONDS`.

It tells what it did in lines on its standard output, and waits for lines on its standard input.
"""

from __future__ import annotations

import asyncio
import sys
from functools import partial

from heaveto.errors import HeavetoError
from heaveto.stores.sqlite import SqliteStore
from heaveto.stores.sqlite.blobs import CHUNK_BYTES, Upload
from heaveto.stores.sqlite.ledger import Ledger
from heaveto.testing.store_contract import KEY, message

BATCH = 3
CHUNK = b"s" * CHUNK_BYTES


def say(word: object) -> None:
    print(word, flush=True)


async def hear() -> str:
    line: str = await asyncio.to_thread(sys.stdin.readline)
    return line.strip()


async def hold(store: SqliteStore) -> None:
    """Claim the session; then append under that lease for every line that comes."""
    lease = await store.claim(KEY)
    say(lease.token)
    while await hear():
        try:
            say(await store.append(KEY, [message()], token=lease.token))
        except HeavetoError as error:
            say(error.code)


async def append(store: SqliteStore) -> None:
    """Append batches for ever, and tell the seq of each that was confirmed."""
    while True:
        say(await store.append(KEY, [message(f"{part}/{BATCH}") for part in range(BATCH)], token=None))


async def begin(store: SqliteStore) -> None:
    """Write two of three chunks of a blob; the last one, and the version, when a line comes."""
    upload = Upload(7, KEY, "big", "x/y", 3 * CHUNK_BYTES, None)
    for place in range(3):
        await store._write(partial(Ledger.add_chunk, upload=upload, place=place, content=memoryview(CHUNK)))
        if place == 1:
            say("begun")
            await hear()
    say(await store._write(lambda ledger: ledger.blobs.publish(upload), durable=True))


async def main() -> None:
    command, path, ttl_seconds = sys.argv[1:]
    async with SqliteStore(path, ttl_seconds=float(ttl_seconds)) as store:
        await {"hold": hold, "append": append, "begin": begin}[command](store)


if __name__ == "__main__":
    asyncio.run(main())
