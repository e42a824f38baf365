"""Loads with groups: many idle groups, and one group that rebalances."""

import itertools
import time
from collections.abc import Callable
from typing import Any, Final

from bench.latency import percentile
from bench.members import ClassicMember, ConsumerMember, MemberFailed
from bench.process import CpuMeter
from bench.swarm import Swarm

Member = ClassicMember | ConsumerMember
#: All members join within this time, as after the start of many clients.
ARRIVAL_SECONDS: Final = 3.0
REBALANCE_SECONDS_MAX: Final = 60.0
SETTLE_SECONDS_MAX: Final = 120.0
SETTLE_CHECK_SECONDS: Final = 0.5


def members_of(order: dict[str, Any]) -> Callable[[str], Member]:
    """Creates members with the order's group protocol."""
    period, topic = order["period_seconds"], order["topic"]
    if order["protocol"] == "classic":
        return lambda group: ClassicMember(group, period_seconds=period)
    numbers = itertools.count()
    return lambda group: ConsumerMember(group, next(numbers), topic=topic, period_seconds=period)


def heartbeats(order: dict[str, Any]) -> dict[str, float]:
    """The groups become stable and are then measured while they are idle."""
    new_member, swarm = members_of(order), Swarm(order["ports"][0])
    names = [f"{order['topic']}-{number}" for number in range(order["groups"])]
    groups = {name: [new_member(name) for _ in range(order["members"])] for name in names}
    everybody = [member for members in groups.values() for member in members]
    started = time.perf_counter()
    for number, member in enumerate(everybody):
        swarm.add(member, delay=number / len(everybody) * ARRIVAL_SECONDS)
    unsettled = list(groups.values())
    while unsettled:
        if time.perf_counter() - started > SETTLE_SECONDS_MAX:
            raise MemberFailed(f"{len(unsettled)} groups did not settle")
        swarm.run(lambda: False, seconds_max=SETTLE_CHECK_SECONDS)
        unsettled = [each for each in unsettled if not is_settled(each, order["partitions"])]
    settled_seconds = time.perf_counter() - started
    swarm.run(lambda: False, seconds_max=order["warm_seconds"])
    answers, swarm.waits = swarm.answers, []
    started, cpu = time.perf_counter(), CpuMeter(order["pids"])
    swarm.run(lambda: False, seconds_max=order["seconds"])
    used, seconds = cpu.read(), time.perf_counter() - started
    if not all(is_settled(group, order["partitions"]) for group in groups.values()):
        raise MemberFailed("a group rebalanced while it was watched")
    waits_ms = sorted(wait * 1000 for wait in swarm.waits)
    swarm.close()
    return {
        "cpu_percent": used / seconds * 100,
        "heartbeats_per_s": (swarm.answers - answers) / seconds,
        "p50_ms": percentile(waits_ms, 0.5),
        "p99_ms": percentile(waits_ms, 0.99),
        "settled_s": settled_seconds,
        "members": len(everybody),
    }


def is_settled(members: list[Member], partitions: int) -> bool:
    """Returns whether all members have the same generation and, in the consumer protocol, every
    partition is assigned."""
    first = members[0]
    if not all(member.is_steady and member.generation == first.generation for member in members):
        return False
    owned = [member.partitions for member in members if isinstance(member, ConsumerMember)]
    return not owned or sum(owned) == partitions


def rebalance(order: dict[str, Any]) -> dict[str, float]:
    """Adds a member several times; measures from its first request until all members are stable
    again."""
    new_member, swarm = members_of(order), Swarm(order["ports"][0])
    group, partitions = order["topic"], order["partitions"]
    members = [new_member(group) for _ in range(order["members"])]
    for number, member in enumerate(members):
        swarm.add(member, delay=number / len(members) * ARRIVAL_SECONDS)

    def wait_settled() -> None:
        if not swarm.run(
            lambda: is_settled(members, partitions), seconds_max=REBALANCE_SECONDS_MAX
        ):
            raise MemberFailed("the group did not settle")

    wait_settled()
    times, cpu_seconds = [], []
    for _time in range(order["times"]):
        swarm.run(lambda: False, seconds_max=2 * order["period_seconds"])
        member = new_member(group)
        members.append(member)
        cpu, started = CpuMeter(order["pids"]), time.perf_counter()
        swarm.add(member)
        wait_settled()
        times.append(time.perf_counter() - started)
        cpu_seconds.append(cpu.read())
    swarm.close()
    return {
        "rebalance_s": percentile(sorted(times), 0.5),
        "rebalance_s_max": max(times),
        "cpu_s": percentile(sorted(cpu_seconds), 0.5),
        "members": len(members),
    }
