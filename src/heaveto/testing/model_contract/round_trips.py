"""Round trips: what an answer leads to is taken, and what is a provider's own goes back as it came."""

from __future__ import annotations

import base64

import msgspec

from heaveto.core.request import Generation, ModelRequest, Turn
from heaveto.events.contents import Blob, FunctionCall, Json, Text, Thought, text_of
from heaveto.testing.model_contract.asking import ASK, answered, ask, results_of, with_turns
from heaveto.testing.model_contract.bodies import objects_in, texts_in
from heaveto.testing.model_contract.suite import ModelSuite
from heaveto.testing.script import call, give, say, think


class RoundTripContract(ModelSuite):
    """What a connector promises of requests."""

    async def test_calls_and_results_go_back_paired(self) -> None:
        """The strict server takes the conversation that the answer leads to (P1)."""
        asked = (say("Both:"), call("look", at="a"), call("look", at="b"))
        async with self.connected(asked, say("fine"), strict_unconfirmed=True) as (model, emulator):
            answer = await ask(model)
            assert text_of((await ask(model, answered(model, answer))).parts) == "fine"
        emulator.assert_done()

    async def test_ids_of_other_providers_are_taken(self) -> None:
        """A conversation may have begun elsewhere, with other ids and names."""
        calls = (FunctionCall(call_id="a.b:c", name="look.at"), FunctionCall(call_id="Ab3dEf9hI", name="look"))
        async with self.connected(say("fine"), strict_unconfirmed=True) as (model, emulator):
            await ask(model, with_turns(Turn("model", calls), results_of(calls)))
        emulator.assert_done()

    async def test_signed_thoughts_go_back_and_unsigned_ones_do_not(self) -> None:
        """A signature is the provider's: back as it came, with its thought, or not at all (F25, F27)."""
        self.needs(self.signature is not None, "it does not sign")
        signed = (think("deep", signature=self.signature), call("look", at="a"))
        async with self.connected(signed, say("fine"), strict_unconfirmed=True) as (model, emulator):
            answer = await ask(model)
            called, results = answered(model, answer).turns[1:]
            unsigned = Thought(text="shallow", provider=model.profile.name)
            await ask(model, with_turns(Turn("model", (unsigned, *called.parts)), results))
        sent = texts_in(emulator.exchanges[1].body)
        assert self.signature in sent
        assert "shallow" not in sent
        emulator.assert_done()

    async def test_provider_data_goes_back_as_it_came(self) -> None:
        """Signatures, encrypted blocks, server-side results and fields that nobody knows: verbatim (F26, F27)."""
        self.needs(bool(self.verbatim), "it names no parts with provider data")
        step = (*(give(part) for part in self.verbatim), say("So."))
        async with self.connected(step, say("fine")) as (model, emulator):
            answer = await ask(model)
            await ask(model, with_turns(Turn("model", answer.parts), Turn("user", (Text(text="and?"),))))
        sent = list(objects_in(emulator.exchanges[1].body))
        for part in self.verbatim:
            assert part.data in sent, f"{part.data} did not go back as it came"
        emulator.assert_done()

    async def test_another_providers_data_stays_behind(self) -> None:
        """It means nothing here, and may be refused (F27)."""
        foreign = Thought(text="secret", signature="c2ln", provider="somebody", data={"type": "odd", "secret": "x"})
        said = Turn("model", (foreign, Text(text="Hm.", provider="somebody", data={"secret": "x"})))
        async with self.connected(say("fine"), strict_unconfirmed=True) as (model, emulator):
            await ask(model, with_turns(said, Turn("user", (Text(text="and?"),))))
        assert "secret" not in msgspec.json.encode(emulator.exchanges[0].body).decode()
        emulator.assert_done()

    async def test_images_go_out_whole(self) -> None:
        """An image is sent inline, as bytes."""
        image = Blob(mime_type="image/png", content=b"\x89PNG\r\n\x1a\n\xff\xfe+/")
        request = ModelRequest(turns=[Turn("user", (Text(text="what is this?"), image))])
        async with self.connected(say("a dot"), strict_unconfirmed=True) as (model, emulator):
            await ask(model, request)
        wanted = base64.b64encode(image.content).decode()
        assert any(text.endswith(wanted) for text in texts_in(emulator.exchanges[0].body))
        emulator.assert_done()

    async def test_a_schema_for_the_answer_goes_out(self) -> None:
        """In the provider's own field, somewhere in the request."""
        schema: dict[str, Json] = {"type": "object", "properties": {"verdict": {"type": "string"}}}
        request = msgspec.structs.replace(ASK, tools=(), generation=Generation(output_schema=schema))
        async with self.connected(say('{"verdict":"ok"}')) as (model, emulator):
            await ask(model, request)
        assert any("verdict" in found for found in objects_in(emulator.exchanges[0].body))
