"""What every model connector promises, as a test suite. Subclass it, say how a model is connected, and run pytest.

    class TestMyModel(ModelContract):
        def connect(self, emulator: Emulator) -> Model:
            return MyModel("m", base_url=emulator.openai_url)

Every test has a server and a model of its own. A connector that also asks without a stream gets a second subclass with
``streams = False``; tests that need what a connector has not, by the attributes of `ModelSuite`, are skipped. The test
methods are coroutines: pytest-asyncio in auto mode, or anyio, runs them. Call
``pytest.register_assert_rewrite("heaveto.testing.model_contract")`` before importing this, to see values in failures.
"""

from heaveto.testing.model_contract.answers import AnswerContract
from heaveto.testing.model_contract.asking import ASK, answered, ask, with_turns
from heaveto.testing.model_contract.connections import ConnectionContract
from heaveto.testing.model_contract.failures import FailureContract
from heaveto.testing.model_contract.round_trips import RoundTripContract
from heaveto.testing.model_contract.stops import StopContract

__all__ = ["ASK", "ModelContract", "answered", "ask", "with_turns"]


class ModelContract(AnswerContract, RoundTripContract, FailureContract, StopContract, ConnectionContract):
    """The suite. Every test's docstring is a sentence of the contract.

    What a subclass says of its connector stands in `ModelSuite`.
    """
