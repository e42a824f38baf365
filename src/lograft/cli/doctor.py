"""`lograft doctor`: checks a cluster from a client's point of view and suggests next steps.

The checks follow the steps of a client: the settings, the bootstrap servers, each broker at its
advertised address, and then the quorum and the partitions.
"""

import asyncio
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from statistics import median
from typing import Final, Literal

from lograft.cli.cluster import registered_brokers
from lograft.cli.node_history import HistoryReader, NodeHistory
from lograft.cli.output import count, numbers
from lograft.client.admin import (
    Admin,
    PartitionDescription,
    QuorumDescription,
    QuorumReplica,
    broker_resource,
)
from lograft.client.errors import (
    BrokerMissing,
    ClientError,
    ConnectionFailed,
    OutcomeUnknown,
    TimedOut,
)
from lograft.client.network import Node
from lograft.model.listeners import SecurityProtocol, parse_security_map
from lograft.model.seams import Address

#: Returns the IP addresses of a host name; raises OSError if it cannot be resolved.
Resolve = Callable[[str], list[str]]
Verdict = Literal["good", "doubtful", "bad"]
#: Number of problems of one kind that are listed by name.
NAMED_MAX: Final = 5
#: Voters fetch at least every half second (controller.quorum.fetch.timeout.ms is 2 s by default).
SILENT_MS: Final = 3_000
#: A busy voter may be a second behind; only a longer delay is a problem.
BEHIND_MS: Final = 30_000
_LISTENERS: Final = "listeners"
_PROTOCOLS: Final = "listener.security.protocol.map"
ELECTION_SETTLES_SECONDS: Final = 1.0
#: The points of a history that are examined: of the last five minutes.
HISTORY_POINTS: Final = 60
#: What the series of a history may reach, in their units, as in packaging/monitoring/alerts.yaml.
LOOP_DELAY_SECONDS_MAX: Final = 0.25
FLUSH_SECONDS_MAX: Final = 1.0
METADATA_LAG_MAX: Final = 100
LOCAL_NAMES: Final = frozenset(("localhost", "127.0.0.1", "::1", "0.0.0.0"))


@dataclass(frozen=True, slots=True)
class Finding:
    verdict: Verdict
    #: The check and its result.
    what: str
    #: Empty if there is nothing to do.
    next_step: str = ""


@dataclass(slots=True)
class Report:
    findings: list[Finding] = field(default_factory=list)

    def add(self, verdict: Verdict, what: str, next_step: str = "") -> None:
        self.findings.append(Finding(verdict, what, next_step))

    @property
    def is_well(self) -> bool:
        return all(finding.verdict != "bad" for finding in self.findings)


def report_lines(report: Report) -> list[str]:
    signs = {"good": "ok", "doubtful": "??", "bad": "!!"}
    lines = []
    for finding in report.findings:
        lines.append(f"{signs[finding.verdict]}  {finding.what}")
        if finding.next_step:
            lines.append(f"    next: {finding.next_step}")
    return lines


async def examine(admin: Admin, resolve: Resolve) -> Report:
    report = Report()
    settings = admin.settings
    servers = ",".join(map(str, settings.bootstrap_addresses()))
    protocol = settings.security_protocol
    report.add("good", f"settings are valid: {servers}, security.protocol={protocol}")
    reachable = await _check_bootstrap_servers(admin, report, resolve)
    if not reachable:
        return report
    try:
        brokers = await _check_brokers(admin, report, reachable, resolve)
        quorum = await _check_quorum(admin, report)
        if quorum is None:
            return report
        await _check_dynamic_settings(admin, report, brokers, quorum)
        await _check_encryption(admin, report, brokers)
        await _check_partitions(admin, report, brokers)
        await _check_nodes(admin, report)
    except ClientError as error:
        report.add(
            "bad", f"the cluster does not respond: {error}", "check the brokers' logs, then retry"
        )
    return report


async def _check_bootstrap_servers(admin: Admin, report: Report, resolve: Resolve) -> list[Address]:
    reachable = []
    for address in admin.settings.bootstrap_addresses():
        if await _can_reach(admin, report, address, f"bootstrap server {address}", resolve):
            reachable.append(address)
    if not reachable:
        report.add(
            "bad",
            "no bootstrap server is available",
            "start a node (`lograft start`), or specify other servers with --bootstrap-server",
        )
    return reachable


async def _can_reach(
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
        addresses = resolve(where.host)
    except OSError:
        report.add(
            "bad",
            f"{name}: the host name {where.host} cannot be resolved",
            f"correct the name or DNS; `getent hosts {where.host}` must find it",
        )
        return False
    try:
        await admin.probe(node)
    except ConnectionFailed as error:
        reason = str(error).removeprefix(f"{where}: ").partition(";")[0]
        report.add("bad", f"{name}: {reason}", _connection_advice(error, where))
        return False
    except BrokerMissing as error:
        report.add("bad", f"{name}: {error}", "check whether the node is still running")
        return False
    report.add("good", f"{name} is reachable ({', '.join(addresses)})")
    return True


def _connection_advice(error: ConnectionFailed, where: Address) -> str:
    if error.stage == "connect":
        return (
            "check that the node is running, that its `listeners` contain this address, and that no"
            f" firewall blocks port {where.port}"
        )
    if error.stage == "tls":
        return "compare security.protocol and the certificates (ssl.truststore.…) with the listener"
    if error.stage == "authentication":
        return "check sasl.mechanism, user and password"
    return (
        "the server does not speak Kafka's protocol, or it expects TLS: check the port and"
        " security.protocol"
    )


async def _check_brokers(
    admin: Admin,
    report: Report,
    reachable: list[Address],
    resolve: Resolve,
) -> list[int]:
    """Returns the brokers that are reachable."""
    cluster = await registered_brokers(admin)
    online = [broker for broker in cluster.brokers if not broker.is_fenced]
    fenced = [broker.id for broker in cluster.brokers if broker.is_fenced]
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
            f"restart {_format_nodes('broker', fenced)}, or move all replicas away (`lograft"
            " reassign`) and unregister with `lograft cluster unregister`",
        )
    is_remote = not any(address.host in LOCAL_NAMES for address in reachable)
    available = []
    for broker in online:
        name = f"broker {broker.id} at its advertised address {broker.address}"
        ok = await _can_reach(admin, report, broker.id, name, resolve, address=broker.address)
        if ok:
            available.append(broker.id)
        if not ok and is_remote and broker.address.host in LOCAL_NAMES:
            report.add(
                "bad",
                f"broker {broker.id} advertises {broker.address}, which refers to this machine for"
                " a client",
                f"set advertised.listeners of node {broker.id} to a name that clients can reach",
            )

    return available


async def _check_dynamic_settings(
    admin: Admin, report: Report, brokers: list[int], quorum: QuorumDescription
) -> None:
    """Reports stored values that nodes skip: operators assume that they are effective."""
    controllers = await _find_reachable_controllers(admin, quorum, other_than=brokers)
    found = await admin.describe_skipped_configs(brokers, controllers=controllers)
    for node, skipped in found.items():
        name = f"{'controller' if node in controllers else 'broker'} {node}"
        for value in skipped[:NAMED_MAX]:
            report.add(
                "bad",
                f"{name} cannot apply the dynamic setting {value}",
                "correct or delete it with `lograft configs`",
            )
        if len(skipped) > NAMED_MAX:
            report.add(
                "bad",
                f"{name} cannot apply {len(skipped) - NAMED_MAX} more dynamic settings",
                "check the node's log",
            )


async def _check_encryption(admin: Admin, report: Report, brokers: list[int]) -> None:
    """Reports listeners whose logins can be read on the network."""
    resources = {broker_resource(broker): broker for broker in brokers}
    described = await admin.describe_configs(resources, names=(_LISTENERS, _PROTOCOLS))
    found = []
    for resource, broker in resources.items():
        values = {name: entry.value or "" for name, entry in described[resource].items()}
        security = parse_security_map(values.get(_PROTOCOLS, ""))
        for entry in values.get(_LISTENERS, "").split(","):
            name = entry.partition("://")[0].strip().upper()
            if security.get(name) is SecurityProtocol.SASL_PLAINTEXT:
                found.append(f"{name} of broker {broker}")
    if found:
        more = f" and {len(found) - NAMED_MAX} more" if len(found) > NAMED_MAX else ""
        report.add(
            "doubtful",
            f"logins are not encrypted (SASL_PLAINTEXT): {', '.join(found[:NAMED_MAX])}{more}",
            "map these listeners to SASL_SSL, unless everyone on the network may read the records"
            " and the passwords of PLAIN",
        )


async def _find_reachable_controllers(
    admin: Admin, quorum: QuorumDescription, *, other_than: list[int]
) -> dict[int, Address]:
    """Returns the controllers that are reachable; it is no problem if they are not."""
    found: dict[int, Address] = {}
    for voter in quorum.voters:
        if voter.node in other_than or not _is_fetching(voter, quorum):
            continue
        for address in quorum.addresses.get(voter.node, {}).values():
            try:
                await admin.probe(address)
            except ConnectionFailed:
                continue
            found[voter.node] = address
            break
    return found


async def _check_quorum(admin: Admin, report: Report) -> QuorumDescription | None:
    """Returns None if no controller is active: then what brokers report about partitions is
    outdated."""
    try:
        quorum = await admin.describe_quorum()
    except (TimedOut, OutcomeUnknown) as error:
        report.add(
            "bad",
            f"the quorum has no active controller, so metadata cannot change: {error}",
            "start controllers until a majority of the voters is running, and check their logs",
        )
        return None
    if any(voter.last_fetch_ms < 0 for voter in quorum.voters):
        # A controller that has just been elected may not have received a fetch from every voter.
        await asyncio.sleep(ELECTION_SETTLES_SECONDS)
        quorum = await admin.describe_quorum()
    summary = (
        f"the quorum has {count(len(quorum.voters), 'voter')}, controller {quorum.leader} is active"
    )
    silent = [voter for voter in quorum.voters if not _is_fetching(voter, quorum)]
    behind = [
        voter
        for voter in quorum.voters
        if voter not in silent and not _is_catching_up(voter, quorum)
    ]
    if silent:
        problems = [await _describe_silence(admin, voter, quorum) for voter in silent]
        has_majority = 2 * len(silent) < len(quorum.voters)
        spare = (len(quorum.voters) - 1) // 2 - len(silent)
        report.add(
            "doubtful" if has_majority else "bad",
            f"{summary}; {'; '.join(problems)}"
            + ("" if has_majority else ": no majority is available")
            + ("; one more failure stops the quorum" if spare == 0 else ""),
            f"restart {_format_controllers(silent)}, or check the network to controller"
            f" {quorum.leader}",
        )
    if behind:
        report.add(
            "doubtful",
            f"{summary}; not caught up: {_format_controllers(behind)}",
            "check for a slow disk or network; `lograft quorum describe` shows their lag",
        )
    if not silent and not behind:
        report.add("good", f"{summary}, all voters have caught up")
    return quorum


def _is_fetching(voter: QuorumReplica, quorum: QuorumDescription) -> bool:
    age_ms = quorum.age_ms(voter.last_fetch_ms)
    return age_ms is not None and age_ms <= SILENT_MS


def _is_catching_up(voter: QuorumReplica, quorum: QuorumDescription) -> bool:
    age_ms = quorum.age_ms(voter.last_caught_up_ms)
    return age_ms is not None and age_ms <= BEHIND_MS


async def _describe_silence(admin: Admin, voter: QuorumReplica, quorum: QuorumDescription) -> str:
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
            # Later stages may fail because the controller listener has other security settings.
            if error.stage == "connect":
                text += f" and {address} does not accept connections"
    return text


def _format_controllers(voters: list[QuorumReplica]) -> str:
    return _format_nodes("controller", [voter.node for voter in voters])


def _format_nodes(role: str, nodes: list[int]) -> str:
    return f"{role}{'' if len(nodes) == 1 else 's'} {numbers(nodes)}"


async def _check_nodes(admin: Admin, report: Report) -> None:
    """Examines the figures of the nodes whose HTTP listeners are reachable: those of this
    machine."""
    histories = await HistoryReader(admin, []).read(points=HISTORY_POINTS)
    for node in histories.nodes:
        problems = list(find_slow_figures(node))
        for what, next_step in problems:
            report.add("doubtful", f"node {node.node_id}: {what}", next_step)
        if not problems:
            report.add("good", f"the figures of node {node.node_id} at {node.url} are normal")


def find_slow_figures(node: NodeHistory) -> Iterator[tuple[str, str]]:
    """Yields what is wrong according to the history of a node, and what to do next."""

    def typical(series: str) -> float:
        """The median, which a single slow point does not change; 0 without values."""
        values = [value for value in node.series.get(series, ()) if value is not None]
        return median(values) if values else 0.0

    if (delay := typical("loop_delay_p99")) > LOOP_DELAY_SECONDS_MAX:
        yield (
            f"its event loop is {delay:.2f} s late",
            "the machine or the node is overloaded: `lograft top` shows its CPU and requests",
        )
    if (flush := typical("flush_p99")) > FLUSH_SECONDS_MAX:
        yield f"an fsync takes {flush:.1f} s", "check the disk"
    if (lag := typical("metadata_lag")) > METADATA_LAG_MAX:
        yield (
            f"it has not applied {lag:.0f} committed metadata records",
            "check its connections to the controllers, and its log",
        )
    if rejected := typical("connections_rejected"):
        yield (
            f"it rejects {rejected:.1f} connections per second",
            "check max.connections and max.connections.per.ip, and which clients connect so often",
        )


async def _check_partitions(admin: Admin, report: Report, reachable: list[int]) -> None:
    topics = await admin.describe_topics()
    partitions = [
        (f"{name}-{each.index}", each)
        for name, topic in topics.items()
        for each in topic.partitions
    ]

    def find(
        matches: Callable[[PartitionDescription], bool],
    ) -> list[tuple[str, PartitionDescription]]:
        return [(name, partition) for name, partition in partitions if matches(partition)]

    def names_of(found: list[tuple[str, PartitionDescription]]) -> str:
        names = ", ".join(name for name, _ in found[:NAMED_MAX])
        return names + (" …" if len(found) > NAMED_MAX else "")

    leaderless = find(lambda partition: partition.leader < 0)
    under_replicated = find(
        lambda partition: partition.leader >= 0 and len(partition.isr) < len(partition.replicas)
    )
    if leaderless:
        candidates = {
            node
            for _, partition in leaderless
            for node in (*partition.isr, *partition.eligible_leaders)
        }
        stopped = sorted(candidates.difference(reachable))
        report.add(
            "bad",
            f"{count(len(leaderless), 'partition')} without a leader: {names_of(leaderless)}",
            f"start {_format_nodes('broker', stopped)}, which can become the leader"
            if stopped
            else "retry in a moment; if it stays so, check the logs of"
            f" {_format_nodes('broker', sorted(candidates))} for offline log dirs",
        )
    if under_replicated:
        missing = {
            node
            for _, partition in under_replicated
            for node in set(partition.replicas) - set(partition.isr)
        }
        report.add(
            "doubtful",
            f"{count(len(under_replicated), 'under-replicated partition')}:"
            f" {names_of(under_replicated)}",
            f"make sure that {_format_nodes('broker', sorted(missing))} can fetch from the leaders;"
            " `lograft topics describe` shows the lag of each replica",
        )
    if not leaderless and not under_replicated:
        report.add(
            "good",
            f"all {count(len(partitions), 'partition')} have a leader and all replicas in sync",
        )


def resolve_host(host: str) -> list[str]:
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return sorted({str(address[0]) for *_, address in found})
