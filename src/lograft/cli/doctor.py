"""`lograft doctor`: is the cluster well, seen from here? Every finding has a cause and a next step.

The way a client goes, one step after the other: settings, the addresses it was given, the brokers
that the cluster names (each at the address that it advertises), the quorum, the partitions.
"""

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal

from lograft.cli.cluster import registered_brokers
from lograft.cli.output import count, numbers
from lograft.client.admin import (
    Admin,
    PartitionDescription,
    QuorumDescription,
    QuorumReplica,
)
from lograft.client.errors import BrokerMissing, ClientError, ConnectionFailed
from lograft.client.network import Node
from lograft.model.seams import Address

#: The addresses of a host name; raises OSError.
Resolve = Callable[[str], list[str]]
Verdict = Literal["good", "doubtful", "bad"]
#: Problems of one kind that are named one by one.
NAMED_MAX: Final = 5
#: Voters fetch at least every half second (controller.quorum.fetch.timeout.ms is 2 s).
SILENT_MS: Final = 3_000
#: A busy voter may be a second behind; only a longer delay is a problem.
BEHIND_MS: Final = 30_000
ELECTION_SETTLES_SECONDS: Final = 1.0
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
    cluster = await registered_brokers(admin)
    online = [one for one in cluster.brokers if not one.is_fenced]
    fenced = [one.id for one in cluster.brokers if one.is_fenced]
    report.add("good", f"cluster {cluster.cluster_id} has {count(len(online), 'broker')} online")
    for sentence in cluster.unenforced_state:
        report.add(
            "doubtful",
            sentence,
            "do not rely on it: restrict access by other means, such as a firewall or TLS client"
            " certificates",
        )
    if fenced:
        report.add(
            "doubtful",
            f"{count(len(fenced), 'registered broker')} offline: {numbers(fenced)}",
            "start them again, or move their partitions away (`lograft reassign`) and remove them"
            " with `lograft cluster unregister`",
        )
    we_are_far = not any(one.host in LOCAL_NAMES for one in reachable)
    answering = []
    for broker in online:
        name = f"broker {broker.id} at its advertised address {broker.address}"
        ok = await _reaches(admin, report, broker.id, name, resolve, address=broker.address)
        if ok:
            answering.append(broker.id)
        if not ok and we_are_far and broker.address.host in LOCAL_NAMES:
            report.add(
                "bad",
                f"broker {broker.id} tells clients to come to {broker.address}, which here means"
                " this machine",
                f"set advertised.listeners of node {broker.id} to a name that clients can reach",
            )

    await _dynamic_settings(admin, report, answering)


async def _dynamic_settings(admin: Admin, report: Report, brokers: list[int]) -> None:
    """Reports stored values that brokers skip: operators assume that they are in force."""
    for broker, skipped in (await admin.describe_skipped_configs(brokers)).items():
        for value in skipped[:NAMED_MAX]:
            report.add(
                "bad",
                f"broker {broker} cannot apply the dynamic setting {value}",
                "correct or delete it with `lograft configs`",
            )
        if len(skipped) > NAMED_MAX:
            report.add(
                "bad",
                f"broker {broker} cannot apply {len(skipped) - NAMED_MAX} more dynamic settings",
                "see the broker's log",
            )


async def _quorum(admin: Admin, report: Report) -> None:
    quorum = await admin.describe_quorum()
    if any(one.last_fetch_ms < 0 for one in quorum.voters):
        # A controller that was elected just now has not had a fetch from every voter yet.
        await asyncio.sleep(ELECTION_SETTLES_SECONDS)
        quorum = await admin.describe_quorum()
    summary = (
        f"the quorum has {count(len(quorum.voters), 'voter')}, controller {quorum.leader} is active"
    )
    silent = [one for one in quorum.voters if not _fetches(one, quorum)]
    behind = [one for one in quorum.voters if one not in silent and not _catches_up(one, quorum)]
    if silent:
        problems = [await _silence(admin, one, quorum) for one in silent]
        has_majority = 2 * len(silent) < len(quorum.voters)
        spare = (len(quorum.voters) - 1) // 2 - len(silent)
        report.add(
            "doubtful" if has_majority else "bad",
            f"{summary}; {'; '.join(problems)}"
            + ("" if has_majority else ": there is no majority")
            + ("; one more failure stops the quorum" if spare == 0 else ""),
            f"start {_controllers(silent)} again, or find out why they cannot fetch from"
            f" controller {quorum.leader}",
        )
    if behind:
        report.add(
            "doubtful",
            f"{summary}; {_controllers(behind)} fetch but do not catch up",
            "check for a slow disk or network; `lograft quorum describe` shows their lag",
        )
    if not silent and not behind:
        report.add("good", f"{summary}, all voters have caught up")


def _fetches(voter: QuorumReplica, quorum: QuorumDescription) -> bool:
    age_ms = quorum.age_ms(voter.last_fetch_ms)
    return age_ms is not None and age_ms <= SILENT_MS


def _catches_up(voter: QuorumReplica, quorum: QuorumDescription) -> bool:
    age_ms = quorum.age_ms(voter.last_caught_up_ms)
    return age_ms is not None and age_ms <= BEHIND_MS


async def _silence(admin: Admin, voter: QuorumReplica, quorum: QuorumDescription) -> str:
    age_ms = quorum.age_ms(voter.last_fetch_ms)
    since = (
        f"since controller {quorum.leader} became active"
        if age_ms is None
        else f"for {age_ms / 1000:.1f} s"
    )
    text = f"controller {voter.node} has not fetched {since}"
    for address in quorum.addresses.get(voter.node, {}).values():
        try:
            await admin.probe(address)
        except ConnectionFailed as error:
            # At another stage it may be the listener's security that differs from the brokers'.
            if error.stage == "connect":
                text += f" and {address} does not accept connections"
    return text


def _controllers(voters: list[QuorumReplica]) -> str:
    return f"controller{'' if len(voters) == 1 else 's'} {numbers(one.node for one in voters)}"


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
