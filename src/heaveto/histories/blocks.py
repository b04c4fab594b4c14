"""What Anthropic, Bedrock and Gemini have in common: messages of blocks, results as blocks of user messages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import cast

from heaveto.core.repair import GAP, Block, Call, Made, Moved, Plan, Result, Turn
from heaveto.core.repair.steps import LAST, Place, Step
from heaveto.histories.work import Body, Work, objects_at, parted


class BlockFormat(ABC):
    """Reads and writes messages of blocks. A subclass knows the blocks.

    Class attributes: `key` of a message holds its blocks; `model` is the model's role; with `joined` the model's
    messages in a row are one turn (A23).
    """

    key = "content"
    model = "assistant"
    joined = True

    @abstractmethod
    def clean(self, work: Work) -> None:
        """See to each message by itself."""

    @abstractmethod
    def settle(self, work: Work) -> None:
        """See to what concerns neighbours and both ends."""

    @abstractmethod
    def call(self, work: Work, block: Body, place: Place) -> Call | None:
        """Return the call that a block of the model is."""

    @abstractmethod
    def result(self, block: Body, place: Place) -> Result | None:
        """Return the result that a block is."""

    @abstractmethod
    def renamed(self, block: Body, new_id: str | None, name: str | None) -> Body:
        """Return a call or result with another id, or another name."""

    @abstractmethod
    def made(self, work: Work, insert: Made) -> Body:
        """Return a result block."""

    @abstractmethod
    def text(self, words: str) -> Body:
        """Return a text block."""

    @abstractmethod
    def quoted(self, result: Result) -> Body:
        """Return a text block that quotes a result."""

    def is_thinking(self, block: Body) -> bool:  # noqa: ARG002
        """Whether a block is signed thinking, which binds to its turn (A15)."""
        return False

    # --- reading ----------------------------------------------------------------------------------------------------

    def blocks(self, message: Body, index: int) -> list[Body]:
        """Return the blocks of a message; a string is one text block."""
        content = message.get(self.key)
        if isinstance(content, str):
            return [self.text(content)]
        return objects_at(content, index, self.key)

    def read(self, work: Work) -> list[Step]:
        """Return calls and results in order."""
        steps: list[Step] = []
        calls: list[Call] = []
        strays: list[Result] = []
        end: Place | None = None
        for index, message in enumerate(work.messages):
            if message is None:
                continue
            if message.get("role") == self.model:
                if end is not None and not self.joined:
                    _close(steps, calls, strays, end)
                end = (index, LAST)
                self._read_model(work, index, message, calls, strays)
                continue
            if end is not None:
                _close(steps, calls, strays, end)
                end = None
            self._read_user(steps, index, message)
        if end is not None:
            _close(steps, calls, strays, end)
        return steps

    def _read_model(self, work: Work, index: int, message: Body, calls: list[Call], strays: list[Result]) -> None:
        content = message.get(self.key)
        if type(content) is str:
            return
        for number, block in enumerate(cast("list[Body]", content or ())):
            call = self.call(work, block, (index, number))
            if call is not None:
                calls.append(call)
            elif (result := self.result(block, (index, number))) is not None:
                strays.append(result)  # A27: a result does not belong there; it will move

    def _read_user(self, steps: list[Step], index: int, message: Body) -> None:
        content = message.get(self.key)
        if type(content) is str:
            steps.append(GAP)
            return
        for number, block in enumerate(cast("list[Body]", content or ())):
            result = self.result(block, (index, number))
            steps.append(GAP if result is None else Block((result,)))

    # --- writing ----------------------------------------------------------------------------------------------------

    def apply(self, work: Work, plan: Plan) -> None:
        """Take out, rename, put in. What comes behind a turn without results opens the next user message (A1, F03)."""
        touched = {place[0] for places in (plan.removed, plan.inserts, plan.ids, plan.names) for place in places}
        messages: list[Body | None] = []
        origins: list[int] = []
        opening: list[Body] = []
        for index, message in enumerate(work.messages):
            if message is None:
                continue
            if opening:
                message, opening = self._opened(work, messages, origins, index, message, opening), []
                if index not in touched and message is not work.messages[index]:
                    messages.append(message)
                    origins.append(index)
                    continue
            if index not in touched:
                messages.append(message)
            else:
                opening = self._inserts(work, plan, (index, LAST))
                messages.append(self._changed(work, plan, index, message))
            origins.append(index)
        if opening:
            messages.append(self.user_message(opening))
            origins.append(len(work.messages) - 1)
        self._keep_thinking_apart(messages)
        work.rebuild(messages, origins)

    def _opened(
        self,
        work: Work,
        messages: list[Body | None],
        origins: list[int],
        index: int,
        message: Body,
        opening: list[Body],
    ) -> Body:
        """Put results before what a message says, or into one of their own."""
        is_user = message.get("role", "user") == "user"
        if is_user and not work.profile.results_alone and self.joined:
            return {**message, self.key: [*opening, *self.blocks(message, index)]}
        messages.append(self.user_message(opening))
        origins.append(index)
        return message

    def _changed(self, work: Work, plan: Plan, index: int, message: Body) -> Body | None:
        source = cast("Body", work.messages[index])
        fresh = len(self.blocks(message, index)) - len(self.blocks(source, index))
        blocks = list(self.blocks(message, index)[:fresh])
        for number, block in enumerate(self.blocks(source, index)):
            place = (index, number)
            if place not in plan.removed:
                new_id, name = plan.ids.get(place), plan.names.get(place)
                blocks.append(block if new_id is None and name is None else self.renamed(block, new_id, name))
            if place in plan.inserts:
                blocks += self._inserts(work, plan, place)
        return {**message, self.key: blocks} if blocks else None

    def _inserts(self, work: Work, plan: Plan, place: Place) -> list[Body]:
        results, quotes = parted(plan.inserts.get(place, ()))
        blocks: list[Body] = []
        for insert in results:
            match insert:
                case Made():
                    blocks.append(self.made(work, insert))
                case Moved(result=result):
                    block = self._block_at(work, result.place)
                    new_id = insert.id if insert.id != result.id and (insert.id or plan.ids.get(result.place)) else None
                    name = plan.names.get(result.place)
                    blocks.append(block if new_id is None and name is None else self.renamed(block, new_id, name))
        return [*blocks, *(self.quoted(quote.result) for quote in quotes)]

    def _block_at(self, work: Work, place: Place) -> Body:
        message = cast("Body", work.messages[place[0]])
        return self.blocks(message, place[0])[place[1]]

    def user_message(self, blocks: list[Body]) -> Body:
        """Return a message of the user."""
        return {"role": "user", self.key: blocks}

    def _keep_thinking_apart(self, messages: list[Body | None]) -> None:
        """A message that lost all it held vanishes, unless two turns with signed thinking would become one (A15)."""
        for place, message in enumerate(messages):
            if message is None and self.joined and 0 < place < len(messages) - 1:
                before, behind = messages[place - 1], messages[place + 1]
                if self._thinks(before) and self._thinks(behind):
                    messages[place] = self.user_message([self.text(".")])

    def _thinks(self, message: Body | None) -> bool:
        if message is None or message.get("role") != self.model or isinstance(message.get(self.key), str):
            return False
        return any(self.is_thinking(block) for block in cast("list[Body]", message.get(self.key) or ()))


def _close(steps: list[Step], calls: list[Call], strays: list[Result], end: Place) -> None:
    steps.append(Turn(tuple(calls), end) if calls else GAP)
    if strays:
        steps += [GAP, Block(tuple(strays)), GAP]
    calls.clear()
    strays.clear()
