"""What OpenAI holds between requests: responses that were stored, and conversations. In memory; no input or output."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from heaveto.core.validate import Violation
from heaveto.testing.emulator.dialects.base import Body, listed
from heaveto.testing.emulator.dialects.openai import openai_error
from heaveto.testing.emulator.dialects.responses_answer import ITEM_IDS

Item = dict[str, Any]
Looked = tuple[int, Body]
"""A status and a body."""
_USABLE = ("completed", "incomplete")
_NO_ITEMS = openai_error(400, "Invalid type for 'items': expected an array of objects.", param="items")


class Job(Protocol):
    """A response that is made in the background."""

    def cancel(self) -> None:
        """Stop making it."""
        ...


@dataclass(slots=True)
class Stored:
    """A response, what was sent for it, and all that the model has read and said up to its end."""

    view: Callable[[], Body]
    sent: list[Item]
    before: list[Item]
    job: Job | None = None

    @property
    def items(self) -> list[Item]:
        return [*self.before, *self.sent, *self.view()["output"]]


@dataclass(slots=True)
class Conversation:
    """Items that the provider keeps together."""

    head: Body
    items: list[Item] = field(default_factory=list[Item])


class HeldResponses:
    """Keeps finished responses and conversations. A response that its client gave up was never kept (F51)."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.stored: dict[str, Stored] = {}
        self.conversations: dict[str, Conversation] = {}
        self._minted = 0

    def context(self, body: Body) -> list[Item] | Violation:
        """Return what stands before a request's input, or why it cannot be gone on with."""
        previous, conversation = body.get("previous_response_id"), _conversation_id(body)
        if previous and conversation:
            words = "Mutually exclusive parameters: 'previous_response_id' and 'conversation'."
            return Violation("R12", 400, openai_error(400, words), unconfirmed=True)
        if previous:
            known = self.stored.get(str(previous))
            if known is not None and known.view()["status"] in _USABLE:
                return known.items
            words = f"Previous response with id '{previous}' not found."
            code = "previous_response_not_found"
            return Violation("R12", 400, openai_error(400, words, param="previous_response_id", code=code))
        if conversation:
            if conversation in self.conversations:
                return list(self.conversations[conversation].items)
            return Violation("R12", 404, _no("Conversation", conversation), unconfirmed=True)
        return []

    def resolved(self, items: list[Item]) -> list[Item] | Violation:
        """Return the items with references replaced by what they refer to (R11)."""
        found: list[Item] = []
        for item in items:
            if item.get("type") != "item_reference":
                found.append(item)
                continue
            known = next((kept for kept in self._all_items() if kept.get("id") == item.get("id")), None)
            if known is None:
                words = (
                    f"Item with id '{item.get('id')}' not found. Items are not persisted when `store` is set to false. "
                    "Try again with `store` set to true, or remove this item from your input."
                )
                return Violation("R11", 404, openai_error(404, words, param="input"))
            found.append(known)
        return found

    def keep(self, body: Body, answer: Body) -> None:
        """Store a finished response, and add to its conversation."""
        self.begin(body, answer["id"], lambda: answer)
        self.finish(body, answer["id"])

    def begin(self, body: Body, response_id: str, view: Callable[[], Body], job: Job | None = None) -> None:
        """Store a response that is still being made."""
        before, sent = self.context(body), self.resolved(input_items(body))
        if isinstance(before, list) and isinstance(sent, list):
            self.stored[response_id] = Stored(view, [self._with_id(item) for item in sent], before, job)

    def finish(self, body: Body, response_id: str) -> None:
        """Add a finished response to the conversation that it belongs to."""
        stored, conversation = self.stored.get(response_id), self.conversations.get(_conversation_id(body))
        if stored is not None and conversation is not None and stored.view()["status"] in _USABLE:
            conversation.items += [*stored.sent, *stored.view()["output"]]

    def show(self, response_id: str) -> Looked:
        """GET /v1/responses/ID."""
        stored = self.stored.get(response_id)
        return (200, stored.view()) if stored is not None else (404, _no("Response", response_id))

    def delete(self, response_id: str) -> Looked:
        """DELETE /v1/responses/ID."""
        if self.stored.pop(response_id, None) is None:
            return 404, _no("Response", response_id)
        return 200, {"id": response_id, "object": "response", "deleted": True}

    def cancel(self, response_id: str) -> Looked:
        """POST /v1/responses/ID/cancel: only what is made in the background can be cancelled; twice is harmless."""
        stored = self.stored.get(response_id)
        if stored is None:
            return 404, _no("Response", response_id)
        if stored.job is None:
            return 400, openai_error(400, "Cannot cancel a synchronous response.")
        stored.job.cancel()
        return 200, stored.view()

    def input_of(self, response_id: str, order: str) -> Looked:
        """GET /v1/responses/ID/input_items."""
        stored = self.stored.get(response_id)
        return (200, _page(stored.sent, order)) if stored is not None else (404, _no("Response", response_id))

    def converse(self, body: Body) -> Looked:
        """POST /v1/conversations."""
        if not _are_items(body):
            return 400, _NO_ITEMS
        head: Body = {
            "id": f"conv_{self._next()}", "object": "conversation", "created_at": int(self._now()),
            "metadata": body.get("metadata") or {},
        }  # fmt: skip
        self.conversations[head["id"]] = Conversation(head, [self._with_id(item) for item in listed(body.get("items"))])
        return 200, head

    def show_conversation(self, name: str) -> Looked:
        """GET /v1/conversations/ID."""
        found = self.conversations.get(name)
        return (200, found.head) if found is not None else (404, _no("Conversation", name))

    def relabel(self, name: str, body: Body) -> Looked:
        """POST /v1/conversations/ID: change its metadata."""
        found = self.conversations.get(name)
        if found is not None:
            found.head = {**found.head, "metadata": body.get("metadata") or {}}
        return self.show_conversation(name)

    def forget(self, name: str) -> Looked:
        """DELETE /v1/conversations/ID."""
        if self.conversations.pop(name, None) is None:
            return 404, _no("Conversation", name)
        return 200, {"id": name, "object": "conversation.deleted", "deleted": True}

    def add_items(self, name: str, body: Body) -> Looked:
        """POST /v1/conversations/ID/items."""
        found = self.conversations.get(name)
        if found is None:
            return 404, _no("Conversation", name)
        if not _are_items(body):
            return 400, _NO_ITEMS
        added = [self._with_id(item) for item in listed(body.get("items"))]
        found.items += added
        return 200, _page(added, "asc")

    def list_items(self, name: str, order: str) -> Looked:
        """GET /v1/conversations/ID/items: the newest first, unless asked otherwise."""
        found = self.conversations.get(name)
        return (200, _page(found.items, order)) if found is not None else (404, _no("Conversation", name))

    def item_ids(self) -> set[str]:
        """Return the ids of all items that are stored."""
        return {str(item.get("id")) for item in self._all_items()}

    def _all_items(self) -> Iterator[Item]:
        for stored in self.stored.values():
            yield from stored.items
        for kept in self.conversations.values():
            yield from kept.items

    def _with_id(self, item: Item) -> Item:
        given = item.get("type")
        kind = given if given and isinstance(given, str) else "message"
        made = {"id": f"{ITEM_IDS.get(kind, 'item')}_in_{self._next()}", "type": kind, "status": "completed"}
        content = item.get("content")
        if kind == "message" and isinstance(content, str):
            spoken = "output_text" if item.get("role") == "assistant" else "input_text"
            return {**made, **item, "content": [{"type": spoken, "text": content}]}
        return {**made, **item, "type": kind}

    def _next(self) -> int:
        self._minted += 1
        return self._minted


def input_items(body: Body) -> list[Item]:
    """Return a request's input as items."""
    given = body.get("input")
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": given}]
    return listed(given)


def _are_items(body: Body) -> bool:
    return all(isinstance(item, dict) for item in listed(body.get("items")))


def _conversation_id(body: Body) -> str:
    given = body.get("conversation")
    return str(cast("Body", given).get("id", "")) if isinstance(given, dict) else str(given or "")


def _page(items: list[Item], order: str) -> Body:
    data = items if order == "asc" else items[::-1]
    ends = {"first_id": data[0]["id"], "last_id": data[-1]["id"]} if data else {"first_id": None, "last_id": None}
    return {"object": "list", "data": data, **ends, "has_more": False}


def _no(kind: str, name: str) -> Body:
    return openai_error(404, f"{kind} with id '{name}' not found.")
