"""Single changes of a partition, and the records built from them. A partition is written as
`replicas/isr[/elr[/last known]] leader`, without epochs; each broker is one digit."""

from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

import pytest

from lograft.metadata.elections import Election, PartitionChange
from lograft.metadata.image import MetadataImage
from lograft.metadata.leadership_rules import LeadershipRules
from lograft.metadata.replay import changed_partition
from lograft.metadata.types import (
    ELR_VERSION,
    LOST_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    LeaderRecovery,
    PartitionState,
    TopicState,
)
from lograft.model.types import ReplicationMode
from lograft.wire.message import Message
from lograft.wire.records.config_record import ConfigRecord
from lograft.wire.records.feature_level_record import FeatureLevelRecord
from lograft.wire.records.partition_record import PartitionRecord
from lograft.wire.records.topic_record import TopicRecord
from tests.unit.metadata.conftest import append, make_config

Cluster = Callable[..., MetadataImage]
T = UUID(int=7)
DIRECTORY = {broker_id: UUID(int=5000 + broker_id) for broker_id in range(10)}


def brokers(text: str) -> list[int]:
    return [int(digit) for digit in text]


def written(state: PartitionState) -> str:
    parts = [state.replicas, state.isr, state.elr, state.last_known_elr]
    texts = ["".join(map(str, part)) for part in parts]
    while len(texts) > 2 and not texts[-1]:
        texts.pop()
    leader = "-" if state.leader < 0 else str(state.leader)
    recovering = " recovering" if state.leader_recovery == LeaderRecovery.RECOVERING else ""
    return f"{'/'.join(texts)} {leader}{recovering}"


class Case:
    """A topic `t` with one partition on brokers, some of which are online."""

    def __init__(self, image: MetadataImage, before: str, **more: Any) -> None:
        self.image = image
        sets, leader = before.split()[:2]
        replicas, isr, *rest = sets.split("/")
        elr, last_known = (*rest, "", "")[:2]
        settings: dict[str, str] = more.pop("settings", {})
        records: list[Message] = [TopicRecord(name="t", topic_id=T)]
        records += (
            ConfigRecord(resource_type=2, resource_name="t", name=name, value=value)
            for name, value in settings.items()
        )
        values: dict[str, Any] = {
            "directories": [DIRECTORY[replica] for replica in brokers(replicas)],
            "leader_recovery_state": int("recovering" in before),
        }
        records.append(
            PartitionRecord(
                partition_id=0,
                topic_id=T,
                replicas=brokers(replicas),
                isr=brokers(isr),
                leader=-1 if leader == "-" else int(leader),
                leader_epoch=5,
                partition_epoch=9,
                eligible_leader_replicas=brokers(elr) or None,
                last_known_elr=brokers(last_known) or None,
                **(values | more),
            )
        )
        append(image, records)

    @property
    def topic(self) -> TopicState:
        return self.image.topics[T]

    def change(self, **leadership_rules: int) -> PartitionChange:
        rules = LeadershipRules(self.image, make_config(), **leadership_rules)
        return PartitionChange(rules, self.topic, 0)

    def built(self, change: PartitionChange) -> str:
        """The new state of the partition; with the increase of its epochs, if any."""
        record = change.build()
        if record is None:
            return "same"
        before = self.topic.partitions[0]
        after = changed_partition(before, record)
        append(self.image, [record])
        assert self.topic.partitions[0] == after
        assert after.partition_epoch == before.partition_epoch + 1
        gained = after.leader_epoch - before.leader_epoch
        return written(after) + (" +epoch" if gained else "")


MIN_2 = {"min.insync.replicas": "2"}
UNCLEAN = {"unclean.leader.election.enable": "true"}


@pytest.mark.parametrize(
    ("up", "before", "gone", "after"),
    [
        # The leader changes only if it must; then the first online replica in sync becomes the
        # leader.
        ("13", "123/123 1", 2, "123/13 1"),
        ("23", "123/123 1", 1, "123/23 2 +epoch"),
        ("23", "123/13 1", 1, "123/3/1 3 +epoch"),
        ("2", "123/13 1", 1, "123/3/1 - +epoch"),
        # Below the minimum of 2, replicas that leave the ISR remain eligible, including the last
        # one.
        ("23", "123/12 1", 2, "123/1/2 - +epoch"),
        ("123", "123/12 1", 2, "123/1/2 1"),
        ("13", "123/1/2 1", 1, "123//12/1 - +epoch"),
        ("12", "123/1/2 1", 1, "123/2/1 2 +epoch"),
        ("13", "123/1/2 1", 3, "same"),
    ],
)
def test_a_broker_leaves(cluster: Cluster, up: str, before: str, gone: int, after: str) -> None:
    case = Case(cluster(*brokers(up), fenced=others(up)), before, settings=MIN_2)
    change = case.change(leaving=gone)
    change.remove_from_isr(gone)
    assert case.built(change) == after


def others(up: str) -> list[int]:
    return [broker_id for broker_id in range(1, 7) if str(broker_id) not in up]


@pytest.mark.parametrize(
    ("before", "crashed", "after"),
    [
        ("123/1/23 1", 2, "123/1/3 1"),
        ("123//12/1 -", 1, "123//2/1 -"),
        ("123/12 1", 2, "123/1 1"),
        ("1/1 1", 1, "1///1 - +epoch"),
        ("1//1/1 -", 1, "1///1 -"),
    ],
)
def test_who_crashed_is_not_eligible(
    cluster: Cluster, before: str, crashed: int, after: str
) -> None:
    up = "1" if before.startswith("123") and crashed == 2 else ""
    case = Case(cluster(*brokers(up), fenced=others(up)), before, settings=MIN_2)
    change = case.change(leaving=crashed)
    change.remove_from_isr(crashed)
    change.crashed = crashed
    assert case.built(change) == after


@pytest.mark.parametrize(
    ("up", "before", "settings", "after"),
    [
        ("1", "123/12 -", {}, "123/12 1 +epoch"),
        ("3", "123/12 -", {}, "same"),
        # An eligible replica leads alone, and only with an empty ISR.
        ("2", "123//23/1 -", MIN_2, "123/2/3 2 +epoch"),
        ("32", "321//23/1 -", MIN_2, "321/3/2 3 +epoch"),
        ("2", "123/1/2 -", MIN_2, "same"),
        ("1", "123//23/1 -", MIN_2, "same"),
        # Without any of them, the last leader; another replica only if that is allowed.
        ("1", "123///1 -", {}, "123/1 1 recovering +epoch"),
        ("2", "123///1 -", {}, "same"),
        ("2", "123///1 -", UNCLEAN, "123/2 2 recovering +epoch"),
        ("12", "213///1 -", UNCLEAN, "213/1 1 recovering +epoch"),
        ("3", "123//2/1 -", UNCLEAN, "123/3 3 recovering +epoch"),
        ("3", "123//2/1 -", {}, "same"),
        ("23", "123//2/1 -", UNCLEAN | MIN_2, "123/2 2 +epoch"),
        # The state is not left without the leader's request.
        ("2", "12/2 - recovering", {}, "12/2 2 recovering +epoch"),
    ],
)
def test_a_broker_arrives(
    cluster: Cluster, up: str, before: str, settings: dict[str, str], after: str
) -> None:
    case = Case(cluster(*brokers(up), fenced=others(up)), before, settings=settings)
    change = case.change()
    change.elect_uncleanly_if_allowed()
    assert case.built(change) == after


def test_an_arriving_broker_may_lead_before_its_record_counts(cluster: Cluster) -> None:
    case = Case(cluster(fenced=[1, 2]), "12/12 -")
    assert case.built(case.change()) == "same"
    assert case.built(case.change(arriving=2)) == "12/12 2 +epoch"


@pytest.mark.parametrize(
    ("up", "before", "after"),
    [
        ("12", "12/12 2", "12/12 1 +epoch"),
        ("2", "12/12 2", "same"),
        ("12", "12/2 2", "same"),
        ("12", "12/12 1", "same"),
        ("13", "123/13 2", "123/13 1 +epoch"),
        ("3", "123/13 2", "123/13 3 +epoch"),
        ("1", "12//1/1 -", "12/1 1 +epoch"),
    ],
)
def test_the_preferred_leader(cluster: Cluster, up: str, before: str, after: str) -> None:
    case = Case(cluster(*brokers(up), fenced=others(up)), before)
    change = case.change()
    change.election = Election.PREFERRED
    assert case.built(change) == after


@pytest.mark.parametrize(
    ("before", "adding", "removing", "isr", "after"),
    [
        # One replica is replaced: complete when the new one is in sync. A replica is removed, so
        # the leader epoch increases.
        ("4123/123 1", "4", "3", "123", "same"),
        ("4123/123 1", "4", "3", "1234", "412/124 1 +epoch"),
        ("4123/123 3", "4", "3", "34", "412/4 4 +epoch"),
        ("423/23 2", "4", "3", "24", "42/24 2 +epoch"),
        # Fewer replicas: all remaining ones must be in sync.
        ("123/12 1", "", "3", "13", "123/13 1"),
        ("123/13 1", "", "3", "123", "12/12 1 +epoch"),
        ("123/1 1", "", "23", "1", "1/1 1 +epoch"),
        # More replicas: the leader epoch does not change.
        ("123/12 1", "3", "", "12", "same"),
        ("123/12 1", "3", "", "123", "123/123 1"),
        # At least one replica remains in sync.
        ("12/1 1", "2", "1", "1", "same"),
    ],
)
def test_reassignments_complete(
    cluster: Cluster, before: str, adding: str, removing: str, isr: str, after: str
) -> None:
    case = Case(
        cluster(1, 2, 3, 4),
        before,
        adding_replicas=brokers(adding),
        removing_replicas=brokers(removing),
    )
    change = case.change()
    change.isr = tuple(brokers(isr))
    assert case.built(change) == after
    state = case.topic.partitions[0]
    if len(state.replicas) < len(before.split("/")[0]) or after.endswith("123/123 1"):
        assert (state.adding_replicas, state.removing_replicas) == ((), ())
        assert state.directories == tuple(DIRECTORY[replica] for replica in state.replicas)


def test_whoever_is_removed_is_not_eligible_any_more(cluster: Cluster) -> None:
    case = Case(
        cluster(1, 2, 3),
        "312/12 1",
        settings=MIN_2,
        adding_replicas=[3],
        removing_replicas=[1, 2],
    )
    change = case.change()
    change.isr = (1, 2, 3)
    assert case.built(change) == "3/3 3 +epoch"


def test_a_partition_needs_no_more_replicas_in_sync_than_it_has(cluster: Cluster) -> None:
    case = Case(cluster(1, 2), "12/12 1", settings={"min.insync.replicas": "3"})
    change = case.change(leaving=2)
    change.remove_from_isr(2)
    assert case.built(change) == "12/1/2 1"
    change = case.change()
    change.isr = (1, 2)
    assert case.built(change) == "12/12 1"


def test_where_the_minimum_comes_from(cluster: Cluster) -> None:
    """The setting of the topic, of this node, of the cluster, and in the file."""

    def minimum(image: MetadataImage, **settings: str) -> int:
        return LeadershipRules(image, make_config(**settings)).rules_of("t").min_insync_replicas

    def set_(kind: int, name: str, value: str) -> Iterable[Message]:
        record = ConfigRecord(resource_type=kind, resource_name=name, value=value)
        record.name = "min.insync.replicas"
        return [record]

    image = cluster(1)
    assert minimum(image) == 1
    assert minimum(image, min_insync_replicas="2") == 2
    append(image, set_(4, "", "3"))
    assert minimum(image, min_insync_replicas="2") == 3
    append(image, set_(4, "1", "4"))
    append(image, set_(4, "2", "9"))
    assert minimum(image) == 4
    append(image, set_(2, "t", "5"))
    assert minimum(image) == 5


def test_a_replica_on_a_lost_disk_cannot_lead(cluster: Cluster) -> None:
    for directory, leads in [
        (DIRECTORY[1], True),
        (UNASSIGNED_DIRECTORY, True),
        (LOST_DIRECTORY, False),
        (UUID(int=666), False),
    ]:
        case = Case(cluster(1), "1/1 -", directories=[directory])
        assert (case.built(case.change()) != "same") == leads


def test_a_replica_that_moves_is_noted(cluster: Cluster) -> None:
    case = Case(cluster(1, 2), "12/12 1")
    change = case.change()
    change.directories[2] = UUID(int=666)
    assert case.built(change) == "12/12 1"
    assert case.topic.partitions[0].directories == (DIRECTORY[1], UUID(int=666))


def test_a_new_replica_goes_where_its_broker_puts_it(cluster: Cluster) -> None:
    case = Case(cluster(1, 2, 3), "12/12 1")
    change = case.change()
    change.replicas, change.adding = (3, 2, 1), (3,)
    assert case.built(change) == "321/12 1"
    assert case.topic.partitions[0].directories == (DIRECTORY[3], DIRECTORY[2], DIRECTORY[1])


def test_old_metadata_versions_bump_the_epoch_of_a_shrinking_isr(cluster: Cluster) -> None:
    image = cluster(1, 2, elr=False)
    append(image, [FeatureLevelRecord(name="metadata.version", feature_level=11)])
    case = Case(image, "12/12 1")
    change = case.change()
    change.isr = (1,)
    assert case.built(change) == "12/1 1 +epoch"
    change = case.change()
    change.isr = (1, 2)
    assert case.built(change) == "12/12 1"


def test_without_the_feature_nobody_is_eligible(cluster: Cluster) -> None:
    image = cluster(1, 2, 3)
    case = Case(image, "123/1/23/1 1", settings=MIN_2)
    append(image, [FeatureLevelRecord(name=ELR_VERSION, feature_level=0)])
    change = case.change(leaving=1)
    change.remove_from_isr(1)
    assert case.built(change) == "123/1//1 - +epoch"


@pytest.mark.parametrize("mode", [ReplicationMode.RAFT, ReplicationMode.LEAVING])
def test_nobody_is_elected_where_the_replicas_decide(
    cluster: Cluster, mode: ReplicationMode
) -> None:
    case = Case(cluster(2, fenced=[1, 3]), "123/1 1", settings=MIN_2, replication_mode=mode)
    assert case.built(case.change()) == "same"
    assert case.built(case.change(leaving=1)) == "same"
