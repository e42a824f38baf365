"""The active controller, its broker's registration, producer ids, and no activity when idle."""

import asyncio
from functools import partial
from typing import TypeVar
from uuid import UUID

import pytest

from lograft.broker.control.registration import (
    NEXT_STAGES,
    BrokerRegistration,
    Stage,
    controller_registration_request,
)
from lograft.broker.coordinators.producer_ids import ProducerIds
from lograft.metadata.brokers import register_controller, unregister_broker
from lograft.metadata.image import MetadataImage
from lograft.metadata.types import ControllerResult, Endpoint, ResourceType
from lograft.model.errors import ErrorCode, Rejected
from lograft.model.types import NodeId
from lograft.simulation.machine import Life
from lograft.wire.messages.unregister_broker import UnregisterBrokerRequest
from lograft.wire.records.begin_transaction_record import BeginTransactionRecord
from lograft.wire.records.config_record import ConfigRecord
from lograft.wire.records.feature_level_record import FeatureLevelRecord
from tests.support.scenarios import scenario
from tests.unit.broker.quorum.metadata_nodes import (
    ControlNode,
    decision,
    new_machine,
    node_config,
    run,
)

T = TypeVar("T")


def stage_of(registration: BrokerRegistration) -> str:
    return registration.stage.value


def is_fenced(node: ControlNode) -> bool:
    return node.image.brokers[1].fenced


@scenario(run)
async def test_what_a_decision_raises_comes_out_and_changes_nothing(life: Life, /) -> None:
    node = await ControlNode.start(life)
    end = node.driver.log.end_offset

    def refuse(image: object) -> object:
        raise Rejected(ErrorCode.INVALID_REQUEST, "no")

    with pytest.raises(Rejected, match="no"):
        await node.controller.submit(refuse)  # type: ignore[arg-type]
    assert node.driver.log.end_offset == end


@scenario(run)
async def test_decisions_see_each_other_before_they_are_committed(life: Life, /) -> None:
    node = await (await ControlNode.start(life)).with_broker()
    replies = await asyncio.gather(*(node.create("same") for _ in range(5)))
    codes = sorted(reply.topics[0].error_code for reply in replies)
    assert codes == [0] + [ErrorCode.TOPIC_ALREADY_EXISTS] * 4
    assert list(node.image.topic_ids) == ["same"]


def test_settings_without_effect_are_reported_in_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    records = [
        ConfigRecord(resource_type=owner, resource_name="a", name=name, value=value)
        for owner, name, value in (
            (ResourceType.TOPIC, "local.retention.ms", "5"),
            (ResourceType.TOPIC, "retention.ms", "5"),
            (ResourceType.GROUP, "streams.session.timeout.ms", "50000"),
        )
    ]

    async def work(life: Life) -> None:
        node = await ControlNode.start(life)
        await node.controller.submit(decision(*records))

    with caplog.at_level("WARNING"):
        run(work)
    (warning,) = (record.getMessage() for record in caplog.records)
    assert warning.endswith(
        ": local.retention.ms of topic a, streams.session.timeout.ms of group a"
    )


def test_a_transaction_that_a_crash_left_open_is_aborted() -> None:
    machine = new_machine()

    async def first(life: Life) -> None:
        node = await ControlNode.start(life)
        record = FeatureLevelRecord(name="x", feature_level=1)
        await node.controller.submit(decision(BeginTransactionRecord(), record))
        assert (
            await node.snapshotter.take() is None
        )  # an image within a transaction is not a valid state

    async def second(life: Life) -> None:
        node = await ControlNode.start(life)
        assert not node.image.in_transaction
        assert "x" not in node.image.features

    run(first, machine)
    run(second, machine)


def test_a_broker_lives_from_registration_to_stop_and_again() -> None:
    machine = new_machine()

    async def life_of_one(life: Life) -> tuple[int, int]:
        node = await ControlNode.start(life)
        registration = node.registration()
        assert stage_of(registration) == "starting"
        epoch = await registration.register()
        assert is_fenced(node)
        assert node.image.offset >= epoch
        life.runtime.spawn(registration.run(), name="heartbeats")
        await registration.wait_unfenced()
        assert not is_fenced(node)
        reply = await node.create("t")
        assert reply.topics[0].error_code in (0, ErrorCode.TOPIC_ALREADY_EXISTS)
        topic = node.image.topic("t")
        assert topic is not None
        state = topic.partitions[0]
        assert (state.leader, state.directories) == (1, (node.directory_id,))
        await registration.shut_down()
        assert stage_of(registration) == "stopped"
        assert is_fenced(node)
        assert node.image.topics[topic.topic_id].partitions[0].leader == -1
        await node.driver.stop()
        return epoch, state.leader_epoch

    first, second = run(life_of_one, machine), run(life_of_one, machine)
    assert second[0] > first[0]
    assert (first[1], second[1]) == (0, 2)


def test_after_a_crash_partitions_get_a_new_leader_epoch() -> None:
    machine = new_machine()

    async def work(life: Life) -> int:
        node = await (await ControlNode.start(life)).with_broker()
        await node.create("t")
        topic = node.image.topic("t")
        assert topic is not None
        assert topic.partitions[0].leader == 1
        return topic.partitions[0].leader_epoch

    assert [run(work, machine) for _ in range(3)] == [0, 2, 4]


@scenario(run)
async def test_a_registration_that_cannot_be_is_an_error(life: Life, /) -> None:
    node = await ControlNode.start(life)
    registration = node.registration()
    assert registration._request is not None
    registration._request.cluster_id = "other"
    with pytest.raises(Rejected, match="INCONSISTENT_CLUSTER_ID"):
        await registration.register()
    await registration.shut_down()
    assert stage_of(registration) == "stopped"


@scenario(run)
async def test_a_silent_broker_is_fenced_and_comes_back(life: Life, /) -> None:
    node = await ControlNode.start(life, node_config(broker_session_timeout_ms="9000"))
    life.runtime.spawn(node.controller.run(), name="controller")
    registration = node.registration()
    await registration.register()
    task = life.runtime.spawn(registration.run(), name="heartbeats")
    await registration.wait_unfenced()
    await asyncio.sleep(60)
    assert not is_fenced(node)
    task.cancel()
    await asyncio.sleep(9.1)
    assert is_fenced(node)
    life.runtime.spawn(registration.run(), name="heartbeats")
    await asyncio.sleep(1)
    assert not is_fenced(node)
    assert stage_of(registration) == "unfenced"


@scenario(run)
async def test_a_broker_that_was_unregistered_registers_again(life: Life, /) -> None:
    node = await (await ControlNode.start(life)).with_broker()
    first = node.image.brokers[1].epoch
    request = UnregisterBrokerRequest(broker_id=1)
    await node.controller.submit(partial(unregister_broker, request=request, config=node.config))
    assert node.image.brokers == {}
    await asyncio.sleep(5)
    assert not is_fenced(node)
    assert node.image.brokers[1].epoch > first


@scenario(run)
async def test_when_all_is_committed_both_images_are_equal(life: Life, /) -> None:
    node = await (await ControlNode.start(life)).with_broker()
    await asyncio.gather(*(node.create(f"t{number}", 3) for number in range(20)))
    seen: list[MetadataImage] = []

    def look(image: MetadataImage) -> ControllerResult[None]:
        seen.append(image)
        return ControllerResult((), None)

    await node.controller.submit(look)
    assert seen[0] is not node.image
    assert seen[0] == node.image


@scenario(run)
async def test_a_stopped_process_does_not_blame_its_brokers(life: Life, /) -> None:
    node = await ControlNode.start(life)
    sessions = node.controller.sessions
    sessions.on_heartbeat(1, epoch=1, metadata_offset=1, now_ms=0)
    sessions.extend_all(100_000)
    assert sessions.find_expired(100_000) == []


@scenario(run)
async def test_the_controller_registers_itself(life: Life, /) -> None:
    node = await ControlNode.start(life)
    request = controller_registration_request(
        node.config,
        incarnation_id=UUID(int=9),
        endpoints=[Endpoint("CONTROLLER", "localhost", 9093, 0)],
    )
    await node.controller.submit(partial(register_controller, request=request))
    assert node.image.controllers[1].endpoints == (Endpoint("CONTROLLER", "localhost", 9093, 0),)


@scenario(run)
async def test_an_idle_node_writes_nothing(life: Life, /) -> None:
    node = await (await ControlNode.start(life)).with_broker()
    life.runtime.spawn(node.controller.run(), name="controller")
    await node.create("t", partitions=100)
    end = node.driver.log.end_offset
    await asyncio.sleep(600)
    assert node.driver.log.end_offset == end


def test_producer_ids_never_come_twice() -> None:
    machine = new_machine()

    async def work(life: Life) -> list[int]:
        node = await ControlNode.start(life)
        registration = node.registration()
        await registration.register()
        ids = ProducerIds(
            node.config.node_id,
            broker_epoch=lambda: registration.broker_epoch,
            link=node.link,
        )
        return list(await asyncio.gather(*(ids.next() for _ in range(1500))))

    first, second = run(work, machine), run(work, machine)
    assert sorted(first) == list(range(1500))
    assert sorted(second) == list(range(2000, 3500))


@scenario(run)
async def test_an_allocation_that_fails_is_told_and_tried_again(life: Life, /) -> None:
    node = await ControlNode.start(life)
    registration = node.registration()
    await registration.register()
    epoch = 0
    ids = ProducerIds(NodeId(1), broker_epoch=lambda: epoch, link=node.link)
    with pytest.raises(Rejected, match="STALE_BROKER_EPOCH"):
        await ids.next()
    epoch = registration.broker_epoch
    assert [await ids.next(), await ids.next()] == [0, 1]


def test_the_table_of_stages_ends_in_stopped() -> None:
    assert NEXT_STAGES.keys() == set(Stage)
    reached = {Stage.STARTING}
    for _ in Stage:
        reached |= {after for stage in reached for after in NEXT_STAGES[stage]}
    assert reached == set(Stage)
    assert NEXT_STAGES[Stage.STOPPED] == frozenset()


@scenario(run)
async def test_submit_takes_plain_functions(life: Life, /) -> None:
    """The decisions of metadata/ are passed with functools.partial or a lambda."""
    node = await ControlNode.start(life)
    assert await node.controller.submit(partial(decision())) == "done"
