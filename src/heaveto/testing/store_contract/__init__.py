"""What every store promises, as a test suite. Subclass it, say how a store is opened, and run pytest.

    class TestMyStore(StoreContract):
        async def open_store(self) -> Store:
            return await MyStore.open(self.place)

Each test opens its store with `open_store` and closes it. `another_instance` opens a second one on the same content;
`reopen` closes a store and opens its content again. Both return None where the store cannot do that, and their tests
are skipped. The test methods are coroutines: pytest-asyncio in auto mode, or anyio, runs them. Call
``pytest.register_assert_rewrite("heaveto.testing.store_contract")`` before importing this, to see values in failures.
"""

from heaveto.testing.store_contract.appends import AppendContract
from heaveto.testing.store_contract.blobs import BlobContract
from heaveto.testing.store_contract.conditions import ConditionContract
from heaveto.testing.store_contract.content import KEY, OTHER, draft, message
from heaveto.testing.store_contract.drafts import DraftContract
from heaveto.testing.store_contract.erasing import EraseContract
from heaveto.testing.store_contract.leases import LeaseContract
from heaveto.testing.store_contract.lifetime import LifetimeContract
from heaveto.testing.store_contract.news import NewsContract
from heaveto.testing.store_contract.runs import RunContract
from heaveto.testing.store_contract.sessions import SessionContract
from heaveto.testing.store_contract.shared_state import SharedStateContract
from heaveto.testing.store_contract.suite import News

__all__ = ["KEY", "OTHER", "News", "StoreContract", "draft", "message"]


class StoreContract(
    SessionContract,
    AppendContract,
    ConditionContract,
    LeaseContract,
    NewsContract,
    RunContract,
    SharedStateContract,
    DraftContract,
    BlobContract,
    EraseContract,
    LifetimeContract,
):
    """The suite. Every test's docstring is a sentence of the contract."""
