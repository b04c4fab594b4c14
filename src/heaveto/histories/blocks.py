"""What Anthropic, Bedrock and Gemini have in common: messages of blocks, results as blocks of user messages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from operator import is_
from typing import cast

from heaveto.core import notes
from heaveto.core.repair import GAP, Block, Call, Made, Moved, Plan, Result, Turn
from heaveto.core.repair.steps import LAST, Place, Step
from heaveto.core.wire_names import NOTHING
from heaveto.histories.work import Body, Work, is_list, objects_at, parted


class BlockFormat(ABC):
    """Reads and writes messages of blocks. A subclass knows the blocks.

    Class attributes: `key` of a message holds its blocks; `model` is the model's role; with `joined` the model's
    messages in a row are one turn (A23).
    """

    key = "content"
    model = "assistant"
    joined = True

    def is_divisible(self, messages: list[Body], settings: Body) -> bool:
        """Always: nothing in a message but the ids of its calls concerns another turn."""
        return True

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

    def is_thinking(self, block: Body) -> bool:
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
        group: list[Body] = []
        for index, message in enumerate(work.messages):
            if message is None or message.get("role") == "system":
                continue
            if message.get("role") == self.model:
                if end is not None and not self.joins(work, group, message):
                    _close(steps, calls, strays, end)
                    group = []
                end = (index, LAST)
                group.append(message)
                self._read_model(work, index, message, calls, strays)
                continue
            if end is not None:
                _close(steps, calls, strays, end)
                end, group = None, []
            self._read_user(steps, index, message)
        if end is not None:
            _close(steps, calls, strays, end)
        return steps

    def joins(self, work: Work, group: list[Body], message: Body) -> bool:
        """Whether a message of the model is of one turn with those right before it (A23)."""
        return self.joined and not work.profile.results_alone

    def _read_model(self, work: Work, index: int, message: Body, calls: list[Call], strays: list[Result]) -> None:
        content = message.get(self.key)
        if type(content) is str:
            return
        blocks: list[Body] = content or []
        for number, block in enumerate(blocks):
            place = (index, number)
            call = self.call(work, block, place)
            if call is not None:
                calls.append(call)
            elif (result := self.result(block, place)) is not None:
                strays.append(result)  # A27: a result does not belong there; it will move

    def _read_user(self, steps: list[Step], index: int, message: Body) -> None:
        content = message.get(self.key)
        if type(content) is str:
            steps.append(GAP)
            return
        blocks: list[Body] = content or []
        for number, block in enumerate(blocks):
            result = self.result(block, (index, number))
            steps.append(GAP if result is None else Block((result,)))

    # --- writing ----------------------------------------------------------------------------------------------------

    def apply(self, work: Work, plan: Plan) -> None:
        """Take out, rename, put in. What comes behind a turn without results opens the next user message (A1, F03)."""
        places = (plan.removed, plan.inserts, plan.ids, plan.names)
        touched = {index for some in places for index, number in some if number != LAST}
        messages: list[Body | None] = []
        origins: list[int] = []
        opening: list[Body] = []
        for index, message in enumerate(work.messages):
            if message is None:
                continue
            told = message
            if opening:
                told, opening = self._opened(work, messages, origins, index, message, opening), []
            if (index, LAST) in plan.inserts:
                opening = self._inserts(work, plan, (index, LAST))
            messages.append(self._changed(work, plan, index, told) if index in touched else told)
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
        if not blocks:
            return None
        given = message.get(self.key)
        is_same = is_list(given) and len(given) == len(blocks) and all(map(is_, given, blocks))
        return message if is_same or (isinstance(given, str) and len(blocks) == 1) else {**message, self.key: blocks}

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
        if not self.joined or None not in messages:
            return
        for place, message in enumerate(messages):
            if message is None:
                before, behind = messages[:place][::-1], messages[place + 1 :]
                if self._run_thinks(before) and self._run_thinks(behind):
                    messages[place] = self.user_message([self.text(NOTHING)])

    def _run_thinks(self, messages: list[Body | None]) -> bool:
        """Whether what the model says first in these messages, up to anybody else, holds signed thinking."""
        for message in messages:
            if message is not None and message.get("role") != self.model:
                return False
            if self.thinks(message):
                return True
        return False

    def thinks(self, message: Body | None) -> bool:
        """Whether a message of the model holds signed thinking."""
        if message is None or message.get("role") != self.model or isinstance(message.get(self.key), str):
            return False
        return any(self.is_thinking(block) for block in cast("list[Body]", message.get(self.key) or ()))


def _close(steps: list[Step], calls: list[Call], strays: list[Result], end: Place) -> None:
    steps.append(Turn(tuple(calls), end) if calls else GAP)
    if strays:
        steps.extend((GAP, Block(tuple(strays)), GAP))
    calls.clear()
    strays.clear()


# --- neighbours and ends --------------------------------------------------------------------------------------------


def settle_ends(work: Work, form: BlockFormat, *, head: str, tail: str) -> None:
    """A user speaks first and last, where the provider wants it. What is added means nothing, or "Continue."."""
    first = next(filter(_is_turn, work.messages), None)
    last = next(filter(_is_turn, reversed(work.messages)), None)
    needs_head = work.is_start and work.profile.starts_with_user and (first is None or first.get("role") == form.model)
    needs_tail = (
        work.profile.ends_with_user and not work.left_open and last is not None and last.get("role") == form.model
    )
    if not needs_head and not needs_tail:
        return
    there = work.placed()
    if needs_head:
        there.insert(0, (0, form.user_message([form.text(NOTHING)])))
        work.report(head, 0, "added", "a user message at the start")
    if needs_tail:
        at = there[-1][0]
        there.append((at, form.user_message([form.text(notes.CONTINUE)])))
        work.report(tail, at, "added", "a user message at the end")
    work.rebuild([message for _, message in there], [origin for origin, _ in there])


def _is_turn(message: Body | None) -> bool:
    return message is not None and message.get("role") != "system"


def set_apart(
    work: Work,
    form: BlockFormat,
    is_special: Callable[[Body], bool],
    rule: str,
    joint: str = "",
    *,
    unless: Callable[[list[Body]], bool] | None = None,
) -> None:
    """Give blocks of one kind a message of their own, results first, calls last (B10). `joint` is the role between."""
    if all(message is None or len(message.get(form.key) or ()) < 2 for message in work.messages):
        return
    messages: list[Body | None] = []
    origins: list[int] = []
    for index, message in work.placed():
        content: list[Body] | str | None = message.get(form.key)
        blocks = content if isinstance(content, list) and len(content) > 1 else []
        special = [block for block in blocks if is_special(block)]
        if not special or len(special) == len(blocks) or (unless is not None and unless(blocks)):
            messages.append(message)
            origins.append(index)
            continue
        others = [block for block in blocks if not is_special(block)]
        first, second = (special, others) if message.get("role") != form.model else (others, special)
        between: list[Body | None] = [{"role": joint, form.key: [form.text(NOTHING)]}] if joint else []
        messages += [{**message, form.key: first}, *between, {**message, form.key: second}]
        origins += [index] * (2 + len(between))
        work.report(rule, index, "split", "results stand alone")
    if len(messages) != len(work.messages):
        work.rebuild(messages, origins)
