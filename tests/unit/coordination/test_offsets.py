"""Offsets of a shard: committed, pending in transactions, expired, deleted with their topic."""

from uuid import UUID

import pytest

from lograft.coordination.offset_commands import commit_offsets, commit_transactional_offsets
from lograft.coordination.offset_expiry import RECORDS_PER_PIECE
from lograft.coordination.offset_fetch import fetch_offsets
from lograft.metadata.delta import MetadataDelta
from lograft.metadata.types import TopicState
from lograft.model.errors import ErrorCode, Rejected
from lograft.model.settings.keys import LONG_MAX
from lograft.model.types import ZERO_UUID
from lograft.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from lograft.wire.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
)
from lograft.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from lograft.wire.records.offset_commit_key import OffsetCommitKey
from tests.unit.coordination.shard_driver import ShardDriver

MINUTE_MS = 60_000


class Offsets(ShardDriver):
    def commit(
        self,
        topic: str,
        positions: dict[int, int],
        *,
        group: str = "g",
        generation: int = -1,
        retention_ms: int = -1,
    ) -> None:
        request = OffsetCommitRequest(
            group_id=group,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=partition, committed_offset=offset
                        )
                        for partition, offset in positions.items()
                    ],
                )
            ],
            generation_id_or_member_epoch=generation,
            retention_time_ms=retention_ms,
        )
        self.ask(
            "commit",
            lambda shard, ticket, now_ms: commit_offsets(
                shard, request, ticket, now_ms=now_ms, api_version=9
            ),
        )

    def commit_in_transaction(self, producer: int, topic: str, positions: dict[int, int]) -> None:
        request = TxnOffsetCommitRequest(
            transactional_id="t",
            group_id="g",
            producer_id=producer,
            producer_epoch=0,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=partition, committed_offset=offset
                        )
                        for partition, offset in positions.items()
                    ],
                )
            ],
        )
        self.ask(
            "commit",
            lambda shard, ticket, _: commit_transactional_offsets(
                shard, request, ticket, api_version=3
            ),
        )

    def fetch(
        self,
        topics: dict[str, list[int]] | None = None,
        *,
        group: str = "g",
        stable: bool = False,
        topic_id: UUID = ZERO_UUID,
    ) -> dict[str, dict[int, int | ErrorCode]]:
        """The offset or the error of each partition."""
        asked = OffsetFetchRequestGroup(group_id=group, topics=None)
        if topics is not None:
            asked.topics = [
                OffsetFetchRequestTopics(name=name, topic_id=topic_id, partition_indexes=partitions)
                for name, partitions in topics.items()
            ]
        self.ask(
            "fetch",
            lambda shard, ticket, _: fetch_offsets(shard, asked, ticket, require_stable=stable),
        )
        ((_, reply),) = self.replies
        assert isinstance(reply, OffsetFetchResponseGroup)
        return {
            topic.name: {
                partition.partition_index: ErrorCode(partition.error_code)
                or partition.committed_offset
                for partition in topic.partitions
            }
            for topic in reply.topics
        }

    def delete_topic(self, name: str) -> None:
        self.replies, self.written = [], []
        delta = MetadataDelta()
        delta.topic_deleted(TopicState(name, UUID(int=7), {}))
        self.run(self.shard.on_image(delta))


@pytest.fixture
def offsets() -> Offsets:
    driver = Offsets({"offsets.retention.minutes": "10"})
    driver.fail_over()
    return driver


def test_the_last_commit_counts_and_outlives_the_coordinator(offsets: Offsets) -> None:
    offsets.commit("t", {0: 5, 1: 7})
    offsets.commit("t", {0: 3})
    expected = {"t": {0: 3, 1: 7}}
    assert offsets.fetch() == expected
    offsets.fail_over()
    assert offsets.fetch() == expected
    assert offsets.fetch({"t": [1, 2], "u": [0]}) == {"t": {1: 7, 2: -1}, "u": {0: -1}}
    assert offsets.fetch(group="nobody") == {}


def test_a_generation_of_a_group_that_is_not_there(offsets: Offsets) -> None:
    with pytest.raises(Rejected) as caught:
        offsets.commit("t", {0: 1}, generation=4)
    assert caught.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    assert not offsets.log


def test_an_offset_of_an_earlier_topic_of_this_name(offsets: Offsets) -> None:
    request = OffsetCommitRequest(
        group_id="g",
        topics=[
            OffsetCommitRequestTopic(
                name="t",
                topic_id=UUID(int=1),
                partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=5)],
            )
        ],
    )
    offsets.ask(
        "commit",
        lambda shard, ticket, now_ms: commit_offsets(
            shard, request, ticket, now_ms=now_ms, api_version=10
        ),
    )
    offsets.fail_over()
    assert offsets.fetch({"t": [0]}, topic_id=UUID(int=1)) == {"t": {0: 5}}
    assert offsets.fetch({"t": [0]}, topic_id=UUID(int=2)) == {"t": {0: -1}}
    assert offsets.fetch({"t": [0]}) == {"t": {0: 5}}


# Transactions.


@pytest.mark.parametrize("fails_over", [False, True])
@pytest.mark.parametrize("committed", [False, True])
def test_offsets_of_a_transaction_count_when_it_is_committed(
    offsets: Offsets, committed: bool, fails_over: bool
) -> None:
    offsets.commit("t", {0: 1})
    offsets.commit_in_transaction(77, "t", {0: 5, 1: 6})
    if fails_over:
        offsets.fail_over()
    assert offsets.fetch({"t": [0, 1]}) == {"t": {0: 1, 1: -1}}
    unstable = ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert offsets.fetch({"t": [0, 1, 2]}, stable=True) == {"t": {0: unstable, 1: unstable, 2: -1}}
    assert offsets.fetch(stable=True) == {"t": {0: unstable}}
    offsets.end_transaction(77, committed=committed)
    if fails_over:
        offsets.fail_over()
    expected = {"t": {0: 5, 1: 6}} if committed else {"t": {0: 1, 1: -1}}
    assert offsets.fetch({"t": [0, 1]}, stable=True) == expected


def test_a_later_commit_is_not_undone_by_an_earlier_transaction(offsets: Offsets) -> None:
    offsets.commit_in_transaction(77, "t", {0: 5, 1: 5})
    offsets.commit("t", {0: 9})
    offsets.end_transaction(77, committed=True)
    assert offsets.fetch() == {"t": {0: 9, 1: 5}}


def test_two_transactions_of_one_group(offsets: Offsets) -> None:
    offsets.commit_in_transaction(1, "t", {0: 5})
    offsets.commit_in_transaction(2, "t", {0: 6, 1: 7})
    offsets.end_transaction(1, committed=True)
    assert offsets.fetch({"t": [0]}, stable=True) == {"t": {0: ErrorCode.UNSTABLE_OFFSET_COMMIT}}
    offsets.end_transaction(2, committed=True)
    assert offsets.fetch(stable=True) == {"t": {0: 6, 1: 7}}
    assert not offsets.shard.offsets.has_pending("g")


# Expiry.


def test_offsets_of_nobody_expire_with_their_group(offsets: Offsets) -> None:
    offsets.commit("t", {0: 5})
    offsets.pass_ms(5 * MINUTE_MS)
    offsets.commit("t", {1: 6})
    offsets.pass_ms(5 * MINUTE_MS)
    assert offsets.fetch() == {"t": {1: 6}}
    assert "g" in offsets.shard.groups
    offsets.pass_ms(20 * MINUTE_MS)
    assert offsets.fetch() == {}
    assert "g" not in offsets.shard.groups
    offsets.fail_over()
    assert "g" not in offsets.shard.groups
    assert len(offsets.shard.offsets) == 0


def test_an_offset_with_an_expiry_of_its_own(offsets: Offsets) -> None:
    offsets.commit("t", {0: 5}, retention_ms=60 * MINUTE_MS)
    offsets.commit("t", {1: 5}, retention_ms=MINUTE_MS)
    offsets.commit("t", {2: 5}, retention_ms=LONG_MAX)
    offsets.fail_over()
    offsets.pass_ms(40 * MINUTE_MS)
    assert offsets.fetch() == {"t": {0: 5, 2: 5}}
    offsets.pass_ms(40 * MINUTE_MS)
    assert offsets.fetch() == {"t": {2: 5}}


def test_an_open_transaction_keeps_an_old_offset(offsets: Offsets) -> None:
    offsets.commit("t", {0: 5})
    offsets.commit_in_transaction(77, "t", {0: 6})
    offsets.pass_ms(60 * MINUTE_MS)
    offsets.end_transaction(77, committed=False)
    assert offsets.fetch() == {"t": {0: 5}}


def test_many_offsets_expire_in_pieces(offsets: Offsets) -> None:
    groups = 3 * RECORDS_PER_PIECE
    for number in range(groups):
        offsets.commit("t", {0: 1}, group=f"g{number}")
    offsets.batch_sizes.clear()
    offsets.pass_ms(60 * MINUTE_MS)
    assert not offsets.shard.groups
    assert max(offsets.batch_sizes) <= RECORDS_PER_PIECE + 1
    assert sum(offsets.batch_sizes) == 2 * groups


def test_what_could_not_be_written_expires_later(offsets: Offsets) -> None:
    offsets.commit("t", {0: 5})
    offsets.failure = ErrorCode.COORDINATOR_NOT_AVAILABLE
    offsets.pass_ms(15 * MINUTE_MS)
    assert offsets.fetch() == {"t": {0: 5}}
    offsets.pass_ms(15 * MINUTE_MS)
    assert offsets.fetch() == {}


# Deleted topics.


def test_offsets_go_with_their_topic(offsets: Offsets) -> None:
    offsets.commit("t", {0: 5, 1: 6})
    offsets.commit("u", {0: 7})
    offsets.commit("t", {0: 5}, group="h")
    offsets.commit_in_transaction(77, "t", {3: 5})
    offsets.delete_topic("t")
    keys = [record.key for record in offsets.written]
    assert {(key.group, key.partition) for key in keys if isinstance(key, OffsetCommitKey)} == {
        ("g", 0),
        ("g", 1),
        ("h", 0),
        ("g", 3),
    }
    offsets.end_transaction(77, committed=True)
    assert offsets.fetch() == {"u": {0: 7}}
    assert offsets.fetch(group="h") == {}


def test_offsets_of_a_deleted_topic_go_when_the_log_takes_it_again(offsets: Offsets) -> None:
    offsets.commit("t", {0: 5})
    offsets.failure = ErrorCode.COORDINATOR_NOT_AVAILABLE
    offsets.delete_topic("t")
    assert offsets.fetch() == {"t": {0: 5}}
    offsets.pass_ms(1_000)
    assert offsets.fetch() == {}


def test_the_reply_says_yes(offsets: Offsets) -> None:
    offsets.commit("t", {0: 5})
    ((_, reply),) = offsets.replies
    assert isinstance(reply, OffsetCommitResponse)
    assert [partition.error_code for partition in reply.topics[0].partitions] == [0]
