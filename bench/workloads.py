"""The workloads. Each runs once against one subject and returns its figures by name."""

import itertools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from bench.process import CpuMeter, rss_mb
from bench.subject import Subject, result_of

Figures = dict[str, float]
GIGABYTE: Final = 1e9
MILLION: Final = 1e6
PRODUCE_PARTITIONS: Final = 2
PRODUCE_IN_FLIGHT: Final = 4
#: Small batches: each partition has its own producer, with five requests in flight, the maximum for
#: which Kafka detects duplicates.
SMALL_PARTITIONS: Final = 4
SMALL_IN_FLIGHT: Final = 5
SMALL_RECORDS: Final = 10
ACKS_ALL: Final = -1
#: Without acks=all, followers lag. Retention must not delete records that they have not fetched.
#: (Otherwise Kafka may take the log dir offline if the topic is deleted afterwards.)
UNREPLICATED_BYTES: Final = 2 << 30

_serials = itertools.count()


@dataclass(frozen=True, slots=True)
class Plan:
    """Durations."""

    seconds: float
    latency_seconds: float
    loaded_seconds: float
    repetitions: int
    #: Maximum number of rounds that warm up a JVM; it ends earlier if the figures stop improving.
    warm_rounds: int
    idle_seconds: float
    #: Settings of every topic, by server.
    topic_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


FULL: Final = Plan(8, 10, 180, 3, 20, 20)
QUICK: Final = Plan(3, 3, 10, 1, 4, 5)


def new_name(base: str) -> str:
    return f"{base}-{next(_serials)}"


def produce(subject: Subject, plan: Plan, *, value_bytes: int, acks: int) -> Figures:
    topic = new_name("produce")
    configs: dict[str, str] = {}
    if acks != ACKS_ALL and subject.replication_factor > 1:
        configs["retention_bytes"] = str(UNREPLICATED_BYTES)
    subject.create_topic(topic, partitions=subject.spread(PRODUCE_PARTITIONS), **configs)
    os.sync()
    cpu = CpuMeter(subject.pids)
    done = subject.run_load(
        "produce",
        topic=topic,
        value_bytes=value_bytes,
        acks=acks,
        in_flight=PRODUCE_IN_FLIGHT,
        seconds=plan.seconds,
    )
    figures = throughput(done, cpu.read()) | in_kernel(done, cpu) | {"rss_mb": rss_mb(subject.pids)}
    subject.delete_topic(topic)
    return figures


def consume(subject: Subject, plan: Plan, *, value_bytes: int) -> Figures:
    topic = new_name("consume")
    partitions = subject.spread(PRODUCE_PARTITIONS)
    topic_id = subject.create_topic(topic, partitions=partitions, retention_bytes="-1")
    written = subject.run_load(
        "produce",
        topic=topic,
        value_bytes=value_bytes,
        acks=-1,
        in_flight=PRODUCE_IN_FLIGHT,
        seconds=plan.seconds / 2,
    )
    ends = [int(written["end_offset_min"])] * partitions
    os.sync()
    totals = {"seconds": 0.0, "messages": 0.0, "bytes": 0.0}
    cpu = CpuMeter(subject.pids)
    while totals["seconds"] < plan.seconds:
        done = subject.run_load(
            "consume",
            topic=topic,
            topic_id=str(topic_id),
            ends=ends,
            value_bytes=value_bytes,
            seconds=plan.seconds,
        )
        for name in totals:
            totals[name] += done[name]
    figures = throughput(totals, cpu.read()) | in_kernel(totals, cpu)
    figures["rss_mb"] = rss_mb(subject.pids)
    subject.delete_topic(topic)
    return figures


def small_batches(subject: Subject, plan: Plan) -> Figures:
    topic = new_name("small")
    subject.create_topic(topic, partitions=subject.spread(SMALL_PARTITIONS))
    first_id = min(subject.producer_id() for _partition in range(subject.spread(SMALL_PARTITIONS)))
    os.sync()
    cpu = CpuMeter(subject.pids)
    done = subject.run_load(
        "produce_small",
        topic=topic,
        records=SMALL_RECORDS,
        value_bytes=100,
        producer_id=first_id,
        in_flight=SMALL_IN_FLIGHT,
        seconds=plan.seconds,
    )
    used = cpu.read()
    figures = throughput(done, used) | {
        "cpu_us_per_request": used / done["requests"] * MILLION,
        "rss_mb": rss_mb(subject.pids),
    }
    subject.delete_topic(topic)
    return figures


def latency(subject: Subject, plan: Plan) -> Figures:
    topic = new_name("latency")
    topic_id = subject.create_topic(topic)
    os.sync()
    cpu = CpuMeter(subject.pids)
    done = run_latency(subject, topic, topic_id, plan.latency_seconds)
    done["cpu_ms_per_message"] = cpu.read() / done["messages"] * 1000
    subject.delete_topic(topic)
    return done


def loaded_latency(subject: Subject, plan: Plan) -> Figures:
    """The same while another client writes records of 1 KB as fast as possible."""
    noise, topic = new_name("writer"), new_name("latency")
    subject.create_topic(noise, partitions=subject.spread(PRODUCE_PARTITIONS))
    topic_id = subject.create_topic(topic)
    os.sync()
    writer = subject.start_load(
        "produce",
        topic=noise,
        value_bytes=1000,
        acks=-1,
        in_flight=PRODUCE_IN_FLIGHT,
        seconds=plan.loaded_seconds,
    )
    done = run_latency(subject, topic, topic_id, plan.loaded_seconds * 0.95)
    written = result_of(writer)
    done["writer_mb_per_s"] = written["bytes"] / written["seconds"] / MILLION
    done["rss_mb"] = rss_mb(subject.pids)
    subject.delete_topic(noise)
    subject.delete_topic(topic)
    return done


def run_latency(subject: Subject, topic: str, topic_id: UUID, seconds: float) -> Figures:
    return subject.run_load(
        "latency",
        topic=topic,
        topic_id=str(topic_id),
        offset=subject.end_offset(topic),
        value_bytes=100,
        seconds=seconds,
    )


def throughput(done: dict[str, float], used: float) -> Figures:
    return {
        "messages_per_s": done["messages"] / done["seconds"],
        "mb_per_s": done["bytes"] / done["seconds"] / MILLION,
        "cpu_s_per_gb": used / done["bytes"] * GIGABYTE,
        "cpu_s_per_million": used / done["messages"] * MILLION,
    }


def in_kernel(done: dict[str, float], cpu: CpuMeter) -> Figures:
    """The share that no server can avoid if the kernel moves the bytes."""
    return {"kernel_s_per_gb": cpu.read_kernel() / done["bytes"] * GIGABYTE}


Workload = Callable[[Subject, Plan], Figures]
WORKLOADS: Final[dict[str, Workload]] = {
    "produce-100B-all": lambda subject, plan: produce(subject, plan, value_bytes=100, acks=-1),
    "produce-100B-1": lambda subject, plan: produce(subject, plan, value_bytes=100, acks=1),
    "produce-1KB-all": lambda subject, plan: produce(subject, plan, value_bytes=1000, acks=-1),
    "produce-1KB-1": lambda subject, plan: produce(subject, plan, value_bytes=1000, acks=1),
    "consume-100B": lambda subject, plan: consume(subject, plan, value_bytes=100),
    "consume-1KB": lambda subject, plan: consume(subject, plan, value_bytes=1000),
    "small-idempotent": small_batches,
    "latency": latency,
    "latency-under-load": loaded_latency,
}
