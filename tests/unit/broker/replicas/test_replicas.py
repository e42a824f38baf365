"""Partitions with followers: brokers that fetch from each other over a simulated network."""

import asyncio

import pytest

from lograft.broker.errors import NotEnoughReplicas, WaitTimedOut
from lograft.broker.partitions.partition import Partition
from lograft.broker.partitions.replica_selection import RACK_AWARE_SELECTOR
from lograft.broker.partitions.replication_throttle import FOLLOWER_RATE, LEADER_RATE
from lograft.broker.replicas.replicas import RECORDS_LOST, THROTTLED
from lograft.metadata.types import ResourceType
from lograft.model.errors import ErrorCode
from lograft.model.metrics import value_of
from lograft.model.types import Offset
from lograft.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from lograft.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from lograft.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from lograft.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from lograft.wire.records.config_record import ConfigRecord
from lograft.wire.records.partition_change_record import PartitionChangeRecord
from tests.support.scenarios import scenario
from tests.unit.broker.bench import batch_of
from tests.unit.broker.replicas.replica_bench import Cluster, run_cluster


def append(partition: Partition, *values: bytes) -> Offset:
    batch = memoryview(bytearray(batch_of(*values)))
    return partition.append(batch, now_ms=1_767_225_600_000).end_offset


def content(partition: Partition) -> bytes:
    log = partition.log
    assert log is not None
    return b"".join(segment.file.pread(segment.size, 0) for segment in log.segments)


@scenario(run_cluster)
async def test_followers_copy_and_what_all_have_is_committed(cluster: Cluster, /) -> None:
    cluster.create_topic("a", 1, 2, 3)
    leader = await cluster.until_led("a")
    end = append(leader, b"x", b"y")
    await leader.wait_committed(end, timeout_ms=5_000)
    assert leader.high_watermark == 2
    for number in (2, 3):
        follower = cluster.nodes[number].partition("a")
        assert content(follower) == content(leader)
        assert follower.leader is None
        assert follower.high_watermark <= 2
    # The high watermark follows with the next response.
    await cluster.until(lambda: cluster.nodes[2].partition("a").high_watermark == 2)
    assert [status.lag for status in leader.statuses()] == [0, 0, 0]


@scenario(run_cluster)
async def test_a_leader_that_comes_back_drops_what_nobody_else_has(cluster: Cluster, /) -> None:
    cluster.create_topic("a", 1, 2, 3, min_insync_replicas="2")
    first = await cluster.until_led("a")
    await first.wait_committed(append(first, b"kept"), timeout_ms=5_000)
    cluster.network.cut("n1", "n2")
    cluster.network.cut("n1", "n3")
    append(first, b"never committed")
    append(first, b"nor this")
    await asyncio.sleep(0.5)
    assert first.high_watermark == 1
    cluster.kill(1)
    cluster.fence(1)
    second = await cluster.until_led("a")
    assert second.me == 2
    end = append(second, b"other")
    await second.wait_committed(end, timeout_ms=5_000)
    cluster.network.heal()
    await cluster.boot(1)
    old = cluster.nodes[1].partition("a")
    await cluster.until(lambda: sorted(cluster.state("a").isr) == [1, 2, 3])
    assert content(old) == content(second)
    assert old.log is not None
    assert second.log is not None
    assert old.log.epochs.entries == second.log.epochs.entries


@scenario(run_cluster)
async def test_a_follower_that_lags_leaves_the_isr_and_comes_back(cluster: Cluster, /) -> None:
    cluster.create_topic("a", 1, 2, 3, min_insync_replicas="2")
    leader = await cluster.until_led("a")
    await leader.wait_committed(append(leader, b"1"), timeout_ms=5_000)
    cluster.network.cut("n1", "n3")
    end = append(leader, b"2")
    with pytest.raises(WaitTimedOut):
        await leader.wait_committed(end, timeout_ms=500)
    # Without the third replica, once it is not in the ISR.
    await leader.wait_committed(end, timeout_ms=10_000)
    assert sorted(cluster.state("a").isr) == [1, 2]
    cluster.network.cut("n1", "n2")
    append(leader, b"3")
    await cluster.until(lambda: cluster.state("a").isr == (1,))
    with pytest.raises(NotEnoughReplicas):
        leader.check_append(acks_all=True)
    leader.check_append(acks_all=False)
    assert leader.high_watermark == 2
    cluster.network.heal()
    await cluster.until(lambda: sorted(cluster.state("a").isr) == [1, 2, 3])
    await cluster.until(lambda: leader.high_watermark == 3)
    assert content(cluster.nodes[3].partition("a")) == content(leader)


@scenario(run_cluster)
async def test_flush_before_ack_waits_for_the_disks_of_all(cluster: Cluster, /) -> None:
    cluster.create_topic("a", 1, 2, 3, flush_messages="1")
    cluster.create_topic("other", 1, 2, 3)
    leader = await cluster.until_led("a")
    await cluster.until_led("other")
    begin_ms = cluster.nodes[1].broker.clock.mono_ms()
    for number in range(1, 11):
        await leader.wait_committed(append(leader, b"x"), timeout_ms=5_000)
        for node in cluster.nodes.values():
            log = node.partition("a").log
            assert log is not None
            assert log.durable_offset >= number
    # No request waited for the end of a long poll of half a second.
    assert cluster.nodes[1].broker.clock.mono_ms() - begin_ms < 2_000


@scenario(run_cluster, 2)
async def test_quiet_partitions_cost_no_look_per_poll(cluster: Cluster, /) -> None:
    for number in range(50):
        cluster.create_topic(f"quiet{number}", 1, 2)
    cluster.create_topic("busy", 1, 2)
    leader = await cluster.until_led("busy")
    await cluster.until(lambda: len(cluster.nodes[2].broker.partitions) == 51)
    await asyncio.sleep(3)
    assert all(len(cluster.state(f"quiet{number}").isr) == 2 for number in range(50)), (
        "a quiet follower stays in sync"
    )
    for _ in range(20):
        await leader.wait_committed(append(leader, b"x"), timeout_ms=5_000)


async def read(
    cluster: Cluster,
    node: int,
    offset: int,
    *,
    rack: str = "",
    version: int = 17,
    epoch: int = -1,
    max_wait_ms: int = 0,
) -> PartitionData:
    topic_id = cluster.controller.image.topic_ids["a"]
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        rack_id=rack,
        topics=[
            FetchTopic(
                topic="a",
                topic_id=topic_id,
                partitions=[
                    FetchPartition(
                        partition=0,
                        current_leader_epoch=epoch,
                        fetch_offset=offset,
                        partition_max_bytes=1 << 20,
                    )
                ],
            )
        ],
    )
    response = await cluster.ask(node, request, version, FetchResponse)
    assert response.error_code == 0
    return response.responses[0].partitions[0]


@scenario(run_cluster, replica_selector_class=RACK_AWARE_SELECTOR)
async def test_consumers_read_from_the_replica_in_their_rack(cluster: Cluster, /) -> None:
    cluster.create_topic("a", 1, 2, 3)
    leader = await cluster.until_led("a")
    await leader.wait_committed(append(leader, b"x"), timeout_ms=5_000)
    assert (await read(cluster, 1, 0, rack="rack1")).records
    assert (await read(cluster, 1, 0, rack="elsewhere")).records
    sent_away = await read(cluster, 1, 0, rack="rack3")
    assert sent_away.preferred_read_replica == 3
    assert not sent_away.records
    # Followers receive the high watermark immediately.
    near = await read(cluster, 3, 0, rack="rack3")
    assert near.error_code == 0
    assert near.high_watermark == 1
    assert isinstance(near.records, memoryview)
    assert bytes(near.records) == content(leader)
    # Followers serve consumers that support it, up to their own high watermark.
    old = await read(cluster, 3, 0, version=10)
    assert old.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    # Beyond its log end it does not know: only the leader can respond that there are no records.
    beyond = await read(cluster, 3, 5, rack="rack3")
    assert beyond.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert beyond.current_leader is not None
    assert beyond.current_leader.leader_id == 1
    nowhere = await read(cluster, 1, 5, rack="rack3")
    assert nowhere.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    fenced = await read(cluster, 3, 0, epoch=7)
    assert fenced.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    # A consumer that waits at a follower is woken by the next commit.
    poll = asyncio.ensure_future(read(cluster, 3, 1, rack="rack3", max_wait_ms=5_000))
    await asyncio.sleep(0.1)
    append(leader, b"y")
    assert (await poll).records


async def list_offset(
    cluster: Cluster, node: int, timestamp: int, version: int = 7
) -> ListOffsetsPartitionResponse:
    asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name="a", partitions=[asked])]
    )
    response = await cluster.ask(node, request, version, ListOffsetsResponse)
    return response.topics[0].partitions[0]


@scenario(run_cluster)
async def test_a_new_leader_does_not_tell_a_latest_offset_that_it_does_not_know(
    cluster: Cluster, /
) -> None:
    cluster.create_topic("a", 1, 2, 3)
    first = await cluster.until_led("a")
    await first.wait_committed(append(first, b"x"), timeout_ms=5_000)
    second = cluster.nodes[2].partition("a")
    assert second.high_watermark == 0, "its leader has not told it yet"
    cluster.network.cut("n2", "n3")
    cluster.kill(1)
    cluster.fence(1)
    await cluster.until_led("a")
    answer = await list_offset(cluster, 2, -1)
    assert answer.error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    answer = await list_offset(cluster, 2, -1, version=4)
    assert answer.error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert (await list_offset(cluster, 2, -2)).offset == 0
    cluster.network.heal()
    await cluster.until(lambda: second.high_watermark == 1)
    assert (await list_offset(cluster, 2, -1)).offset == 1


@scenario(run_cluster)
async def test_records_are_deleted_when_all_replicas_have_deleted_them(cluster: Cluster, /) -> None:
    async def delete(cluster: Cluster, offset: int, timeout_ms: int) -> tuple[int, int]:
        asked = DeleteRecordsPartition(partition_index=0, offset=offset)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name="a", partitions=[asked])], timeout_ms=timeout_ms
        )
        response = await cluster.ask(1, request, 2, DeleteRecordsResponse)
        (answer,) = response.topics[0].partitions
        return answer.error_code, answer.low_watermark

    cluster.create_topic("a", 1, 2, 3)
    leader = await cluster.until_led("a")
    for _ in range(3):
        await leader.wait_committed(append(leader, b"x"), timeout_ms=5_000)
    assert await delete(cluster, 2, 5_000) == (ErrorCode.NONE, 2)
    for node in cluster.nodes.values():
        log = node.partition("a").log
        assert log is not None
        assert log.log_start_offset == 2
    cluster.network.cut("n1", "n3")
    assert await delete(cluster, 3, 300) == (ErrorCode.REQUEST_TIMED_OUT, 2)


@scenario(run_cluster, 2)
async def test_a_replica_far_behind_begins_anew_at_its_leaders_start(cluster: Cluster, /) -> None:
    cluster.create_topic("a", 1, 2, min_insync_replicas="1")
    leader = await cluster.until_led("a")
    await leader.wait_committed(append(leader, b"x"), timeout_ms=5_000)
    cluster.kill(2)
    cluster.fence(2)
    await leader.wait_committed(append(leader, b"y", b"z"), timeout_ms=5_000)
    leader.advance_log_start(Offset(2))
    await cluster.boot(2)
    await cluster.until(lambda: len(cluster.state("a").isr) == 2)
    log = cluster.nodes[2].partition("a").log
    assert log is not None
    assert (log.log_start_offset, log.end_offset) == (2, 3)
    assert log.segments[0].base_offset == 1, "the leader's log begins inside a batch"


def change_replicas(cluster: Cluster, *replicas: int) -> None:
    topic = cluster.controller.image.topic("a")
    assert topic is not None
    state = topic.partitions[0]
    nodes = [cluster.nodes[node] for node in replicas]
    cluster.controller.append(
        (
            PartitionChangeRecord(
                partition_id=0,
                topic_id=topic.topic_id,
                replicas=list(replicas),
                directories=[node.broker.logs.directories[0].directory_id for node in nodes],
                isr=[node for node in state.isr if node in replicas],
            ),
        )
    )


@scenario(run_cluster)
async def test_a_new_replica_copies_and_a_removed_one_deletes(cluster: Cluster, /) -> None:
    cluster.create_topic("a", 1, 2)
    leader = await cluster.until_led("a")
    await leader.wait_committed(append(leader, b"x" * 1000), timeout_ms=5_000)
    change_replicas(cluster, 1, 3)
    await cluster.until(lambda: sorted(cluster.state("a").isr) == [1, 3])
    assert content(cluster.nodes[3].partition("a")) == content(leader)
    assert cluster.nodes[2].broker.partitions.get("a", 0) is None
    disk = cluster.nodes[2].life.disk
    await cluster.until(lambda: "a-0" not in disk.list_dir("/data"))
    await leader.wait_committed(append(leader, b"y"), timeout_ms=5_000)


@pytest.mark.parametrize("throttled", [LEADER_RATE, FOLLOWER_RATE])
@scenario(run_cluster, replica_fetch_max_bytes="60000")
async def test_a_copy_is_no_faster_than_its_limit(cluster: Cluster, /, throttled: str) -> None:
    """KIP-73: for replicas that are listed and not in sync."""

    def limit(cluster: Cluster, name: str, rate: int) -> None:
        cluster.controller.append(
            (
                ConfigRecord(
                    resource_type=ResourceType.BROKER,
                    resource_name="",
                    name=name,
                    value=str(rate),
                ),
            )
        )

    async def copy(cluster: Cluster) -> float:
        clock = cluster.nodes[1].broker.clock
        begin_ms = clock.mono_ms()
        change_replicas(cluster, 1, 3)
        await cluster.until(lambda: sorted(cluster.state("a").isr) == [1, 3], seconds=120)
        return (clock.mono_ms() - begin_ms) / 1000

    named = {"leader_replication_throttled_replicas": "0:1"}
    if throttled == FOLLOWER_RATE:
        named = {"follower_replication_throttled_replicas": "*"}
    cluster.create_topic("a", 1, 2, **named)
    leader = await cluster.until_led("a")
    for _ in range(20):
        await leader.wait_committed(append(leader, b"x" * 50_000), timeout_ms=5_000)
    limit(cluster, throttled, 100_000)
    seconds = await copy(cluster)
    assert 4 <= seconds <= 15, seconds
    brokers = [node.broker.replicas for node in cluster.nodes.values()]
    assert sum(value_of(replicas, THROTTLED) for replicas in brokers) > 0
    # A replica in sync is not throttled.
    begin_ms = cluster.nodes[1].broker.clock.mono_ms()
    for _ in range(20):
        await leader.wait_committed(append(leader, b"x" * 50_000), timeout_ms=5_000)
    assert cluster.nodes[1].broker.clock.mono_ms() - begin_ms < 2_000


@scenario(run_cluster)
async def test_the_leader_shows_what_it_knows_of_each_replica(cluster: Cluster, /) -> None:
    cluster.create_topic("a", 1, 2, 3)
    leader = await cluster.until_led("a")
    await leader.wait_committed(append(leader, b"x"), timeout_ms=5_000)
    cluster.network.cut("n1", "n3")
    await asyncio.sleep(0.5)
    append(leader, b"y")
    await asyncio.sleep(0.5)
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name="a")], response_partition_limit=10
    )
    kind = DescribeTopicPartitionsResponse
    shown = (await cluster.ask(1, request, 0, kind)).topics[0].partitions[0]
    assert shown.replica_nodes == [1, 2, 3]
    assert shown.high_watermark == 1
    assert shown.replica_end_offsets == [2, 2, 1]
    assert shown.replica_log_start_offsets == [0, 0, 0]
    assert shown.replica_last_caught_up_ages_ms[1] < 500
    assert shown.replica_last_caught_up_ages_ms[2] >= 500
    elsewhere = (await cluster.ask(2, request, 0, kind)).topics[0].partitions[0]
    assert elsewhere.replica_end_offsets == []


@scenario(run_cluster, 2)
async def test_after_an_unclean_election_the_old_leader_gives_up_what_is_lost(
    cluster: Cluster, /
) -> None:
    cluster.create_topic("a", 1, 2, unclean_leader_election_enable="true")
    first = await cluster.until_led("a")
    await first.wait_committed(append(first, b"both"), timeout_ms=5_000)
    cluster.network.cut("n1", "n2")
    end = append(first, b"only here")
    await cluster.until(lambda: cluster.state("a").isr == (1,))
    await first.wait_committed(end, timeout_ms=5_000)
    # The high watermark is written to a checkpoint.
    await asyncio.sleep(10)
    cluster.kill(1)
    cluster.fence(1)
    second = await cluster.until_led("a")
    assert second.me == 2
    # It reports the recovery without a request.
    await cluster.until(lambda: cluster.state("a").leader_recovery == 0)
    append(second, b"other")
    cluster.network.heal()
    await cluster.boot(1)
    await cluster.until(lambda: sorted(cluster.state("a").isr) == [1, 2])
    old = cluster.nodes[1].partition("a")
    assert content(old) == content(second)
    assert b"only here" not in content(old)
    assert value_of(cluster.nodes[1].broker.replicas, RECORDS_LOST) == 1
