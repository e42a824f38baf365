"""Measurements of groups and transactions, each with its own server: the cost of idle groups, the
duration of a large group's rebalance, and the number of small transactions per second."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from bench.subject import GROUP_KEY, TRANSACTION_KEY, Subject, make_server
from bench.workloads import Figures, Plan
from tests.compatibility.servers import Kind

#: 10,000 members in total, each with its own connection.
GROUPS: Final = 1000
MEMBERS_PER_GROUP: Final = 10
PARTITIONS_PER_GROUP: Final = 20
#: The default of Kafka's clients.
HEARTBEAT_SECONDS: Final = 3.0
WARM_SECONDS: Final[dict[Kind, float]] = {"lograft": 3.0, "kafka": 15.0}
LARGE_GROUP: Final = 500
LARGE_PARTITIONS: Final = 1000
REBALANCES: Final = 3
TOPIC: Final = "members"
PRODUCERS: Final = 64
TRANSACTION_PARTITIONS: Final = 8


def heartbeats(protocol: str) -> Callable[[Kind, Path, Plan], Figures]:
    def measure(kind: Kind, folder: Path, plan: Plan) -> Figures:
        with make_server(kind, folder).started() as server:
            subject = Subject([server])
            subject.create_topic(TOPIC, partitions=PARTITIONS_PER_GROUP)
            subject.wait_coordinator(TOPIC, GROUP_KEY)
            return subject.run_load(
                "heartbeats",
                topic=TOPIC,
                pids=subject.pids,
                protocol=protocol,
                groups=GROUPS,
                members=MEMBERS_PER_GROUP,
                partitions=PARTITIONS_PER_GROUP,
                period_seconds=HEARTBEAT_SECONDS,
                # A JVM needs longer, until its code is compiled.
                warm_seconds=WARM_SECONDS[kind],
                seconds=max(4 * HEARTBEAT_SECONDS, plan.idle_seconds),
            )

    return measure


def rebalance(protocol: str) -> Callable[[Kind, Path, Plan], Figures]:
    def measure(kind: Kind, folder: Path, plan: Plan) -> Figures:
        with make_server(kind, folder).started() as server:
            subject = Subject([server])
            subject.create_topic(TOPIC, partitions=LARGE_PARTITIONS)
            subject.wait_coordinator(TOPIC, GROUP_KEY)
            return subject.run_load(
                "rebalance",
                topic=TOPIC,
                pids=subject.pids,
                protocol=protocol,
                members=LARGE_GROUP,
                partitions=LARGE_PARTITIONS,
                period_seconds=HEARTBEAT_SECONDS,
                times=min(REBALANCES, plan.repetitions),
            )

    return measure


def transactions(protocol: int) -> Callable[[Kind, Path, Plan], Figures]:
    """Each transaction has one record of 100 bytes; producers wait only for their responses."""

    def measure(kind: Kind, folder: Path, plan: Plan) -> Figures:
        with make_server(kind, folder).started() as server:
            subject = Subject([server])
            subject.create_topic(TOPIC, partitions=TRANSACTION_PARTITIONS)
            subject.wait_coordinator(TOPIC, TRANSACTION_KEY)
            return subject.run_load(
                "transactions",
                topic=TOPIC,
                pids=subject.pids,
                protocol=protocol,
                producers=PRODUCERS,
                partitions=TRANSACTION_PARTITIONS,
                value_bytes=100,
                warm_seconds=WARM_SECONDS[kind],
                seconds=plan.seconds,
            )

    return measure
