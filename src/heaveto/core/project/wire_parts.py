"""What of a model's own messages its provider gets back, and under which ids. Other providers get the neutral rest."""

from __future__ import annotations

from msgspec.structs import replace

from heaveto.core.project.told import Call
from heaveto.core.request import ModelProfile
from heaveto.core.wire_names import unique
from heaveto.events.contents import (
    Blob,
    FileRef,
    FunctionCall,
    FunctionResponse,
    Opaque,
    Part,
    ProviderCall,
    ProviderResult,
    Text,
    Thought,
    calls_of,
)


class WireParts:
    """Makes the parts of one conversation fit for one provider. Remembers the ids that it has given."""

    __slots__ = ("_profile", "_used_ids")

    def __init__(self, profile: ModelProfile) -> None:
        self._profile = profile
        self._used_ids: set[str] = set()

    def of(self, said: tuple[Part, ...]) -> tuple[list[Part], list[Call]]:
        """Return a message's parts as this provider may get them, and its calls."""
        parts: list[Part] = []
        calls: list[Call] = []
        answered = {part.id for part in said if isinstance(part, ProviderResult)}
        counting = {id(call) for call in calls_of(said)}
        for part in said:
            if isinstance(part, FunctionCall):
                if id(part) in counting:
                    call = Call(part.call_id, self._wire_id(part), part.name)
                    calls.append(call)
                    parts.append(self._wire_call(part, call.wire_id))
            elif self._may_send(part, answered):
                parts.append(self._neutral(part))
        return parts, calls

    def _wire_id(self, part: FunctionCall) -> str:
        """The provider's own id for a call it made, as long as that is unique; else ours (F20)."""
        wanted = part.provider_id if part.provider_id and self._made(part) else part.call_id
        wire_id = unique(wanted, self._used_ids, then=part.call_id)
        self._used_ids.add(wire_id)
        return wire_id

    def _wire_call(self, part: FunctionCall, wire_id: str) -> FunctionCall:
        args = {} if part.defect else part.args
        if not self._made(part):
            return FunctionCall(call_id=wire_id, name=part.name, args=args)
        return FunctionCall(
            call_id=wire_id, name=part.name, args=args, provider=part.provider, data=part.data,
            provider_id=part.provider_id if part.provider_id != wire_id else None,
        )  # fmt: skip

    def _may_send(self, part: Part, answered: set[str]) -> bool:
        match part:
            case Text():
                return bool(part.text.strip())
            case Thought():
                return bool(part.signature and self._profile.thoughts and self._made(part))
            case FunctionResponse() | FunctionCall():
                return False
            case ProviderCall():
                return self._made(part) and part.id in answered
            case ProviderResult() | Opaque():
                return self._made(part)
            case Blob() | FileRef():
                return True

    def _neutral(self, part: Part) -> Part:
        if self._made(part) or (not part.provider and part.data is None):
            return part
        return replace(part, provider="", data=None)

    def _made(self, part: Part) -> bool:
        """Whether the provider made it, so that it knows its ids and data."""
        return part.provider == self._profile.name
