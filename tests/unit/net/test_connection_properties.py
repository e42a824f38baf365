"""Whatever requests arrive, in whatever pieces, and in whatever order their waits end: every
request is handled once and in order, and the responses are sent in that order too."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from lograft.net.connection import FlowLimits
from tests.support.scenarios import scenario
from tests.unit.net.connection_fakes import framed, setting, settle

#: a: immediate response, n: no response, w: waits, p: waits with pipelining, N: waits, then has no
#: response.
KINDS = "anwpN"


@settings(max_examples=150, deadline=None)
@given(
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=14),
    padding=st.lists(st.sampled_from([0, 1, 50, 5_000, 70_000]), min_size=1, max_size=4),
    chunk=st.sampled_from([1 << 30, 40_000, 1_000, 97]),
    responses_max=st.integers(1, 6),
    clogs=st.booleans(),
    choices=st.randoms(use_true_random=False),
)
@scenario()
async def test_requests_and_responses_keep_their_order(
    kinds: list[str],
    padding: list[int],
    chunk: int,
    responses_max: int,
    clogs: bool,
    choices: Random,
) -> None:
    bodies = [
        f"{kind}{number}-".encode() + bytes(padding[number % len(padding)])
        for number, kind in enumerate(kinds)
    ]
    expected = [body for body in bodies if body[:1] not in (b"n", b"N")]

    limits = FlowLimits(responses_max=responses_max, unsent_bytes_max=20_000)
    async with setting(limits) as setup:
        setup.channel.takes_all = not clogs
        setup.channel.deliver(b"".join(map(framed, bodies)), chunk=chunk)
        for _ in range(20 * len(bodies)):
            await settle()
            handled = setup.handler.handled
            assert handled == bodies[: len(handled)]
            assert setup.responses == expected[: len(setup.responses)]
            waiting = [gate for gate in setup.handler.gates.values() if not gate.done()]
            assert len(waiting) <= responses_max
            if waiting:
                choices.choice(waiting).set_result(None)
            elif setup.channel.unsent_bytes:
                setup.channel.drain()
            elif len(setup.responses) == len(expected) and len(handled) == len(bodies):
                break
        assert setup.handler.handled == bodies
        assert setup.responses == expected
