import asyncio
import logging
from uuid import UUID

import pytest

from lograft.broker.errors import NotLeader, PartitionMissing, UnknownPartition, UnknownTopicId
from lograft.broker.partitions.partition_table import PARTITIONS
from lograft.metadata.brokers import fence_broker
from lograft.model.metrics import value_of
from lograft.model.types import NodeId
from lograft.wire.records.access_control_entry_record import AccessControlEntryRecord
from lograft.wire.records.feature_level_record import FeatureLevelRecord
from lograft.wire.records.partition_change_record import PartitionChangeRecord
from lograft.wire.records.partition_record import PartitionRecord
from lograft.wire.records.remove_access_control_entry_record import RemoveAccessControlEntryRecord
from lograft.wire.records.topic_record import TopicRecord
from lograft.wire.records.user_scram_credential_record import UserScramCredentialRecord
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, directory_id, run


@scenario(run)
async def test_partitions_follow_the_metadata_log(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a")
    assert (partition.leads, partition.leader_epoch) == (True, 0)
    await bench.controller.submit(lambda image: fence_broker(image, 1, config=bench.config))
    assert (partition.leads, partition.leader_epoch) == (False, 1)
    assert partition.log is not None
    assert partition.log.directory == "/data/a-0"


@scenario(run)
async def test_partitions_of_other_brokers_are_not_ours(bench: Bench, /) -> None:
    topic_id = bench.life.runtime.randomness.uuid()
    state = {
        "topic_id": topic_id,
        "partition_id": 0,
        "replicas": [2],
        "isr": [2],
        "leader": 2,
        "directories": [directory_id("x")],
    }
    bench.controller.append(
        (TopicRecord(name="far", topic_id=topic_id), PartitionRecord(**state))  # type: ignore[arg-type]
    )
    assert bench.broker.partitions.get("far", 0) is None
    assert isinstance(bench.broker.missing_error("far", 0), NotLeader)
    assert isinstance(bench.broker.missing_error("far", 1), UnknownPartition)
    assert isinstance(bench.broker.missing_error("none", 0), UnknownPartition)
    assert isinstance(bench.broker.missing_id_error(directory_id("?"), 0), UnknownTopicId)
    assert not isinstance(bench.broker.missing_error("far", 1, to_produce=True), PartitionMissing)


@scenario(run)
async def test_a_replica_that_is_taken_away_is_deleted(bench: Bench, /) -> None:
    await bench.create_topic("a")
    bench.controller.append(
        (
            PartitionChangeRecord(
                topic_id=bench.topic_id("a"), partition_id=0, replicas=[2], isr=[2], leader=2
            ),
        )
    )
    assert bench.broker.partitions.get("a", 0) is None
    await asyncio.sleep(1)
    assert not bench.life.disk.exists("/data/a-0")


@scenario(run)
async def test_waiting_for_the_image(bench: Bench, /) -> None:
    waiting = asyncio.ensure_future(
        bench.broker.metadata.wait_image(lambda image: "a" in image.topic_ids, timeout_ms=10_000)
    )
    await asyncio.sleep(0.1)
    assert not waiting.done()
    bench.begin_topic("a")
    await waiting
    start_ms = bench.broker.clock.mono_ms()
    await bench.broker.metadata.wait_image(lambda image: False, timeout_ms=50)
    assert bench.broker.clock.mono_ms() - start_ms >= 50


@scenario(run)
async def test_where_clients_reach_a_broker(bench: Bench, /) -> None:
    end = bench.broker.endpoint_of(NodeId(1), "PLAINTEXT")
    assert end is not None
    assert (end.host, end.port) == ("localhost", 9092)
    assert bench.broker.endpoint_of(1, "SSL") is None
    assert bench.broker.endpoint_of(2, "PLAINTEXT") is None
    assert value_of(bench.broker, PARTITIONS) == 0


def test_state_that_is_not_enforced_is_named_at_start_and_when_it_changes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(bench: Bench) -> None:
        def warnings() -> list[str]:
            found = [
                record.getMessage().partition(":")[0]
                for record in caplog.records
                if record.name == "lograft.broker.cluster_metadata"
            ]
            caplog.clear()
            return found

        append = bench.controller.append
        append((AccessControlEntryRecord(id=UUID(int=1), principal="User:ann"),))
        assert warnings() == []  # still starting: once, when everything is loaded
        bench.broker.metadata.warn_of_unenforced_state()
        assert warnings() == [
            "1 ACL is stored but not enforced, because authorizer.class.name is not set"
        ]
        append((FeatureLevelRecord(name="share.version", feature_level=1),))
        assert warnings() == ["share.version 1"]
        append((UserScramCredentialRecord(name="ann", mechanism=1),))
        assert warnings() == []
        append((RemoveAccessControlEntryRecord(id=UUID(int=1)),))
        assert warnings() == []

    with caplog.at_level(logging.WARNING):
        run(scenario)
