"""The embedded store: one SQLite file, any number of processes on one machine.

`schema` holds tables and migrations, `sql` the statements, `worker` and `writer` the threads and the group commit,
`reader` the queries, `store` the `Store`. What a write does is the `ledger`, over one part for each subject: `rows` of
sessions, `appends`, `leases` (with `liveness`: who counts as alive), `blobs`, `shared` state, and `news` for those who
listen; `transactions` and `wal` are below all of them.
"""

from heaveto.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
