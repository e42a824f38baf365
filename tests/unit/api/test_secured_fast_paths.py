"""With an authorizer, the fast paths decide as the general path does, also just after a change."""

import asyncio
import random
from typing import Any, Final, cast

import pytest

from lograft.api.router import Router, Session
from lograft.model.errors import ErrorCode
from lograft.model.exchange import PendingReply, Reply
from lograft.model.seams import Address, Channel, FileSlice
from lograft.security.acls import Acl, PatternType
from lograft.security.authorization import (
    TOPIC_DESCRIBE,
    TOPIC_READ,
    TOPIC_WRITE,
    TRANSACTIONAL_ID_WRITE,
    Need,
)
from lograft.wire.headers import frame_request
from lograft.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from lograft.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.support.scenarios import scenario
from tests.unit.api.secured_bench import USER, acl_of, add_acls, as_user, remove_acls, secure
from tests.unit.broker.bench import Bench, Peer, batch_of, decoded, fast_paths_of, run

DENIED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
MALLORY: Final = "User:mallory"
STEPS: Final = 150


def produce_request(bench: Bench, topic: str, **settings: Any) -> ProduceRequest:
    transactional_id = settings.pop("transactional_id", None)
    data = PartitionProduceData(index=0, records=batch_of(b"v" * 100, **settings))
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=1,
        timeout_ms=1_000,
        topic_data=[
            TopicProduceData(name=topic, topic_id=bench.topic_id(topic), partition_data=[data])
        ],
    )


def fetch_request(bench: Bench, topic: str, *, offset: int = 0, wait_ms: int = 0) -> FetchRequest:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, topic_id=bench.topic_id(topic), partitions=[wanted])],
    )


async def produce(bench: Bench, topic: str = "t", version: int = 13, **settings: Any) -> int:
    request = produce_request(bench, topic, **settings)
    response = await bench.ask(request, version, ProduceResponse)
    return response.responses[0].partition_responses[0].error_code


async def fetch(bench: Bench, topic: str = "t", version: int = 18, **settings: Any) -> int:
    response = await bench.ask(fetch_request(bench, topic, **settings), version, FetchResponse)
    return response.responses[0].partitions[0].error_code


def served(bench: Bench) -> tuple[int, int]:
    fast = fast_paths_of(bench.session("broker")._router)
    return fast.produce.served, fast.fetch.served


@pytest.mark.parametrize("versions", [(9, 12), (12, 12), (13, 18)])
@scenario(run)
async def test_a_revoked_permission_applies_to_the_next_request(
    bench: Bench, /, versions: tuple[int, int]
) -> None:
    await bench.create_topic("t")
    secure(bench)
    acls = (acl_of(TOPIC_WRITE, "t"), acl_of(TOPIC_READ, "t"))
    for turn in range(1, 3):
        await add_acls(bench, *acls)
        for _ in range(3):
            assert await produce(bench, version=versions[0]) == 0
            assert await fetch(bench, version=versions[1]) == 0
        # The first one after a change takes the general path.
        assert served(bench) == (2 * turn, 2 * turn)
        assert await remove_acls(bench, *acls) == 2
        for _ in range(2):
            assert await produce(bench, version=versions[0]) == DENIED
            assert await fetch(bench, version=versions[1]) == DENIED
        assert served(bench) == (2 * turn, 2 * turn)


@scenario(run)
async def test_a_pattern_belongs_to_one_principal(bench: Bench, /) -> None:
    """All send the same bytes."""
    await bench.create_topic("t")
    secure(bench)
    await add_acls(bench, acl_of(TOPIC_WRITE, "t"), acl_of(TOPIC_READ, "t"))
    for _ in range(2):
        assert (await produce(bench), await fetch(bench)) == (0, 0)
    as_user(bench, MALLORY)
    assert (await produce(bench), await fetch(bench)) == (DENIED, DENIED)
    as_user(bench, USER)
    assert (await produce(bench), await fetch(bench)) == (0, 0)
    assert served(bench) == (2, 2)


@scenario(run)
async def test_a_pattern_belongs_to_one_host(bench: Bench, /) -> None:
    await bench.create_topic("t")
    secure(bench)
    await add_acls(bench, acl_of(TOPIC_READ, "t")._replace(host=Peer.peer.host))
    for _ in range(2):
        assert await fetch(bench) == 0
    assert served(bench)[1] == 1

    class Elsewhere:
        peer = Address("10.0.0.2", 4711)

    router = bench.session("broker")._router
    other = router(cast(Channel, Elsewhere()))
    other.authenticate_as(USER)
    bench._routers["broker"] = other
    assert await fetch(bench) == DENIED


@scenario(run)
async def test_a_denied_request_leaves_no_pattern(bench: Bench, /) -> None:
    await bench.create_topic("t")
    secure(bench)
    await add_acls(bench, acl_of(TOPIC_DESCRIBE, "t"))
    for _ in range(3):
        assert (await produce(bench), await fetch(bench)) == (DENIED, DENIED)
    assert served(bench) == (0, 0)
    assert bench.partition("t").high_watermark == 0


@scenario(run)
async def test_transactional_records_need_a_transactional_id(bench: Bench, /) -> None:
    """Patterns exclude the records, so one of ordinary records must not permit transactions."""
    await bench.create_topic("t")
    secure(bench)
    await add_acls(bench, acl_of(TOPIC_WRITE, "t"))
    denied = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    transactional: dict[str, Any] = {
        "producer_id": 5,
        "producer_epoch": 0,
        "base_sequence": 0,
        "transactional": 1,
    }
    for _ in range(2):
        assert await produce(bench) == 0
    assert await produce(bench, **transactional) == denied
    for _ in range(2):
        assert await produce(bench, transactional_id="x") == 0
        assert await produce(bench, transactional_id="x", **transactional) == denied
    # No pattern with a transactional id that the principal may not use.
    assert served(bench)[0] == 1
    await add_acls(bench, acl_of(TRANSACTIONAL_ID_WRITE, "x"))
    for _ in range(2):
        assert await produce(bench, transactional_id="x") == 0
    assert served(bench)[0] == 2
    assert await produce(bench, transactional_id="x", **transactional) != denied


@pytest.mark.parametrize("is_fast", [True, False])
@scenario(run)
async def test_a_waiting_fetch_returns_nothing_that_is_denied(
    bench: Bench, /, is_fast: bool
) -> None:
    """The permission is revoked while it waits, and then records arrive."""
    await bench.create_topic("t")
    secure(bench)
    await add_acls(bench, acl_of(TOPIC_READ, "t"), acl_of(TOPIC_WRITE, "t", principal=MALLORY))
    if is_fast:
        assert await fetch(bench, wait_ms=5_000) == 0
    waiting = asyncio.ensure_future(fetch(bench, wait_ms=5_000))
    await asyncio.sleep(0.01)
    assert served(bench)[1] == is_fast
    assert await remove_acls(bench, acl_of(TOPIC_READ, "t")) == 1
    as_user(bench, MALLORY)
    assert await produce(bench) == 0
    as_user(bench, USER)
    assert await waiting == DENIED


def slow_session(bench: Bench) -> Session:
    """The handler of a connection without fast paths."""
    router = Router(
        bench.broker.shared,
        bench.broker,
        listener="PLAINTEXT",
        role="broker",
        link=bench.broker.link,
        authorizer=bench.broker.metadata.authorizer,
    )
    router.fast_paths = None
    return router(cast(Channel, Peer()))


@pytest.mark.parametrize("seed", range(3))
@scenario(run)
async def test_both_paths_decide_alike(bench: Bench, /, seed: int) -> None:
    chance = random.Random(seed)
    topics = ("a", "ab", "b")
    for topic in topics:
        await bench.create_topic(topic)
    authorizer = secure(bench)
    present: set[Acl] = set()
    slow = slow_session(bench)
    user = USER
    for _ in range(STEPS):
        topic = chance.choice(topics)
        match chance.choice(("acl", "user", "produce", "produce", "fetch", "fetch", "fetch")):
            case "acl":
                acl = acl_of(
                    chance.choice((TOPIC_READ, TOPIC_WRITE)),
                    chance.choice(("a", "ab", "*")),
                    pattern=chance.choice((PatternType.LITERAL, PatternType.PREFIXED)),
                    principal=chance.choice((USER, MALLORY, "User:*")),
                    is_denied=chance.random() < 0.25,
                )
                await (remove_acls if acl in present else add_acls)(bench, acl)
                present ^= {acl}
            case "user":
                user = chance.choice((USER, MALLORY))
            case "produce":
                as_user(bench, user)
                host = Peer.peer.host
                allowed = authorizer.explain(user, host, Need(*TOPIC_WRITE, topic)).is_allowed
                code = await produce(bench, topic, version=chance.choice((11, 13)))
                assert code == (0 if allowed else DENIED)
            case "fetch":
                as_user(bench, user)
                slow.authenticate_as(user)
                version = chance.choice((12, 18))
                request = fetch_request(bench, topic, offset=chance.randrange(3))
                frame = frame_request(request, version, correlation_id=7, client_id="test")[4:]
                fast = bench.session("broker").handle_frame(memoryview(bytearray(frame)))
                general = slow.handle_frame(memoryview(bytearray(frame)))
                assert await content(fast) == await content(general)
    produced, fetched = served(bench)
    assert produced
    assert fetched


async def content(reply: Reply) -> bytes:
    response = decoded(reply)
    if isinstance(response, PendingReply):
        response = await response.response
    assert response is not None
    return b"".join(
        part.file.pread(part.size, part.position) if isinstance(part, FileSlice) else part
        for part in response.parts
    )
