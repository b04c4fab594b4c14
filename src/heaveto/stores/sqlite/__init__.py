"""The embedded store: one SQLite file, any number of processes on one machine.

`schema` holds tables and migrations, `sql` the statements, `ledger` what a write does inside a transaction, `liveness`
who counts as alive, `worker` and `writer` the threads and the group commit, `reader` the queries, `store` the `Store`.
"""

from heaveto.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
