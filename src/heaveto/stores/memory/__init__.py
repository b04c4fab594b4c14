"""A store in memory: for tests, for trying out, and for sessions that need not outlive the process.

`data` is what is kept and how it changes, `appends` what an append checks and does, `store` the `Store`.
"""

from heaveto.stores.memory.data import MemoryData
from heaveto.stores.memory.store import MemoryStore

__all__ = ["MemoryData", "MemoryStore"]
