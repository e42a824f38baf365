"""`lograft doctor`: is the cluster well, seen from here? Every finding has a cause and a next step.

The way a client goes, one step after the other: settings, the addresses it was given, the brokers
that the cluster names (each at the address that it advertises), the quorum, the partitions.
"""

import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal

from lograft.cli.output import count, numbers
from lograft.client.admin import Admin, PartitionDescription
from lograft.client.errors import BrokerMissing, ClientError, ConnectionFailed
from lograft.client.network import Node
from lograft.model.seams import Address

#: The addresses of a host name; raises OSError.
Resolve = Callable[[str], list[str]]
Verdict = Literal["good", "doubtful", "bad"]
#: Problems of one kind that are named one by one.
NAMED_MAX: Final = 5
LOCAL_NAMES: Final = frozenset(("localhost", "127.0.0.1", "::1", "0.0.0.0"))


@dataclass(frozen=True, slots=True)
class Finding:
    verdict: Verdict
    #: What was looked at, and what was seen.
    what: str
    #: "" where all is well.
    next_step: str = ""


@dataclass(slots=True)
class Report:
    findings: list[Finding] = field(default_factory=list)

    def add(self, verdict: Verdict, what: str, next_step: str = "") -> None:
        self.findings.append(Finding(verdict, what, next_step))

    @property
    def is_well(self) -> bool:
        return all(one.verdict != "bad" for one in self.findings)


def lines(report: Report) -> list[str]:
    signs = {"good": "ok", "doubtful": "??", "bad": "!!"}
    shown = []
    for one in report.findings:
        shown.append(f"{signs[one.verdict]}  {one.what}")
        if one.next_step:
            shown.append(f"    next: {one.next_step}")
    return shown


async def examine(admin: Admin, resolve: Resolve) -> Report:
    report = Report()
    settings = admin.settings
    servers = ",".join(map(str, settings.bootstrap_addresses()))
    report.add("good", f"settings are readable: {servers} by {settings.security_protocol}")
    reachable = await _bootstrap(admin, report, resolve)
    if not reachable:
        return report
    try:
        await _brokers(admin, report, reachable, resolve)
        await _quorum(admin, report)
        await _partitions(admin, report)
    except ClientError as error:
        report.add(
            "bad", f"the cluster does not answer: {error}", "see the brokers' logs, then try again"
        )
    return report


async def _bootstrap(admin: Admin, report: Report, resolve: Resolve) -> list[Address]:
    reachable = []
    for address in admin.settings.bootstrap_addresses():
        if await _reaches(admin, report, address, f"bootstrap server {address}", resolve):
            reachable.append(address)
    if not reachable:
        report.add(
            "bad",
            "no bootstrap server can be used",
            "start a node (`lograft start`), or name the right servers with --bootstrap-server",
        )
    return reachable


async def _reaches(
    admin: Admin,
    report: Report,
    node: Node,
    name: str,
    resolve: Resolve,
    *,
    address: Address | None = None,
) -> bool:
    where = node if isinstance(node, Address) else address
    assert where is not None
    try:
        found = resolve(where.host)
    except OSError:
        report.add(
            "bad",
            f"{name}: the host name {where.host} is not known here",
            f"mend the name or DNS; does `getent hosts {where.host}` find it?",
        )
        return False
    try:
        await admin.probe(node)
    except ConnectionFailed as error:
        told = str(error).removeprefix(f"{where}: ").partition(";")[0]
        report.add("bad", f"{name}: {told}", _advice(error, where))
        return False
    except BrokerMissing as error:
        report.add("bad", f"{name}: {error}", "it has just gone: is the node running?")
        return False
    report.add("good", f"{name} answers ({', '.join(found)})")
    return True


def _advice(error: ConnectionFailed, where: Address) -> str:
    if error.stage == "connect":
        return (
            f"is the node running, and does a firewall let port {where.port} through?"
            " Its `listeners` must hold this address"
        )
    if error.stage == "tls":
        return "compare security.protocol and the certificates (ssl.truststore.…) with the listener"
    if error.stage == "authentication":
        return "check sasl.mechanism, user and password"
    return (
        "something answers there that is no Kafka, or speaks TLS where we do not: check the port"
        " and security.protocol"
    )


async def _brokers(
    admin: Admin,
    report: Report,
    reachable: list[Address],
    resolve: Resolve,
) -> None:
    cluster = await admin.describe_cluster()
    report.add("good", f"cluster {cluster.cluster_id} has {count(len(cluster.brokers), 'broker')}")
    we_are_far = not any(one.host in LOCAL_NAMES for one in reachable)
    for broker in cluster.brokers:
        name = f"broker {broker.id} at its advertised address {broker.address}"
        ok = await _reaches(admin, report, broker.id, name, resolve, address=broker.address)
        if not ok and we_are_far and broker.address.host in LOCAL_NAMES:
            report.add(
                "bad",
                f"broker {broker.id} tells clients to come to {broker.address}, which here means"
                " this machine",
                f"set advertised.listeners of node {broker.id} to a name that clients can reach",
            )


async def _quorum(admin: Admin, report: Report) -> None:
    quorum = await admin.describe_quorum()
    furthest = max(one.end_offset for one in quorum.voters)
    # A voter that is a second behind is busy; one that was never heard of is away.
    away = [
        one.node
        for one in quorum.voters
        if one.node != quorum.leader and (one.end_offset < 0 or one.last_fetch_ms < 0)
    ]
    said = (
        f"the quorum has {count(len(quorum.voters), 'voter')}, controller {quorum.leader} is active"
    )
    if not away:
        report.add("good", f"{said}, all of them at offset {furthest} or near")
    elif 2 * len(away) < len(quorum.voters):
        report.add("doubtful", f"{said}, {numbers(away)} are away", "start them again")
    else:
        report.add("bad", f"{said}, {numbers(away)} are away: no majority", "start them now")


async def _partitions(admin: Admin, report: Report) -> None:
    topics = await admin.describe_topics()
    partitions = [
        (f"{name}-{one.index}", one) for name, topic in topics.items() for one in topic.partitions
    ]

    def those(
        is_so: Callable[[PartitionDescription], bool],
    ) -> list[tuple[str, PartitionDescription]]:
        return [(name, one) for name, one in partitions if is_so(one)]

    def named(found: list[tuple[str, PartitionDescription]]) -> str:
        some = ", ".join(name for name, _ in found[:NAMED_MAX])
        return some + (" …" if len(found) > NAMED_MAX else "")

    leaderless = those(lambda one: one.leader < 0)
    behind = those(lambda one: one.leader >= 0 and len(one.isr) < len(one.replicas))
    if leaderless:
        holders = sorted(
            {node for _, one in leaderless for node in (*one.isr, *one.eligible_leaders)}
        )
        report.add(
            "bad",
            f"{count(len(leaderless), 'partition')} without a leader: {named(leaderless)}",
            f"start the brokers that hold them: {numbers(holders)}",
        )
    if behind:
        missing = sorted({node for _, one in behind for node in set(one.replicas) - set(one.isr)})
        report.add(
            "doubtful",
            f"{count(len(behind), 'partition')} with replicas that are not in sync:"
            f" {named(behind)}",
            f"see whether brokers {numbers(missing)} are up; `lograft topics describe` shows their"
            " lag",
        )
    if not leaderless and not behind:
        report.add(
            "good", f"all {count(len(partitions), 'partition')} have a leader and all replicas"
        )


def system_resolve(host: str) -> list[str]:
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return sorted({str(address[0]) for *_, address in found})
