"""Runs seeds of all kinds, and writes failure files."""

import hashlib
import json
import platform
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any, Final

from campaigns.acls.plan import AclOptions
from campaigns.acls.run import run_acls
from campaigns.clients_run import run_clients
from campaigns.cluster_plan import ClusterOptions
from campaigns.cluster_run import ClusterReport, run_cluster
from campaigns.compaction_torture import torture_compaction
from campaigns.groups.plan import GroupsOptions
from campaigns.groups.run import run_groups
from campaigns.ledger import Ledger
from campaigns.node import NodeOptions, node_options, options_as_json, run_node
from campaigns.raft_run import run_raft
from campaigns.shrinking import shrink_acl_options, shrink_groups_options, shrink_options
from campaigns.storage_torture import LIVES, TortureReport, torture


@dataclass(slots=True)
class RunReport:
    """Report of a seed of one kind."""

    kind: str
    seed: int
    trace_hash: str
    options: dict[str, Any] = field(default_factory=dict)
    simulated_seconds: float = 0.0
    cpu_seconds: float = 0.0
    #: Counts, to be summed over seeds.
    figures: dict[str, int] = field(default_factory=dict)
    #: The first violated invariant and its message; empty if there was none.
    invariant: str = ""
    message: str = ""
    last_events: list[str] = field(default_factory=list)
    history: str = ""

    @property
    def has_failed(self) -> bool:
        return bool(self.invariant)


def run_storage(seed: int, *, lives: int = LIVES) -> RunReport:
    return _of_torture("storage", torture(seed, lives=lives), lives)


def run_compaction(seed: int, *, lives: int = LIVES) -> RunReport:
    return _of_torture("compaction", torture_compaction(seed, lives=lives), lives)


def _of_torture(kind: str, report: TortureReport, lives: int) -> RunReport:
    violation = report.violation
    return RunReport(
        kind=kind,
        seed=report.seed,
        trace_hash=report.trace_hash,
        options={"lives": lives},
        figures={
            "crashes": report.crashes,
            "power losses": report.power_losses,
            "kills": report.kills,
            "in recovery": report.crashes_in_recovery,
            "clean stops": report.clean_stops,
            "failed disks": report.disk_failures,
            "batches": report.batches,
        },
        invariant=violation.invariant if violation else "",
        message=str(violation) if violation else "",
        last_events=report.last_events,
    )


def _shrink_lives(run: Callable[..., RunReport], seed: int) -> RunReport:
    """Returns the run with the fewest lives that still fails; earlier random draws do not
    change."""
    for lives in range(1, LIVES):
        report = run(seed, lives=lives)
        if report.has_failed:
            return report
    return run(seed)


def run_whole_node(seed: int, options: NodeOptions | None = None) -> RunReport:
    report = run_node(seed, options)
    first = report.violations[0] if report.violations else None
    return RunReport(
        kind="node",
        seed=seed,
        trace_hash=report.trace_hash,
        options=options_as_json(report.options),
        figures={
            "starts": report.starts,
            "kills": report.kills,
            "power losses": report.power_losses,
            "acknowledged records": report.acknowledged,
        },
        invariant=first.invariant if first else "",
        message=f"{first.invariant}: {first.message}" if first else "",
        last_events=report.last_events,
        history=report.history,
    )


def shrink_node(seed: int) -> RunReport:
    """Removes faults from the plan, one at a time, as long as the same invariant is violated."""
    best = run_node(seed)
    if not best.violations:
        return run_whole_node(seed)
    invariant = best.violations[0].invariant
    options = best.options
    index = 0
    while index < len(options.faults):
        fewer = options.faults[:index] + options.faults[index + 1 :]
        attempt = NodeOptions(options.seconds, options.policy, fewer)
        violations = run_node(seed, attempt).violations
        if any(violation.invariant == invariant for violation in violations):
            options = attempt
        else:
            index += 1
    return run_whole_node(seed, options)


def run_whole_cluster(seed: int, options: ClusterOptions | None = None) -> RunReport:
    return _of_cluster("cluster", run_cluster(seed, options))


def run_with_clients(seed: int, options: ClusterOptions | None = None) -> RunReport:
    return _of_cluster("clients", run_clients(seed, options))


def run_with_groups(seed: int, options: GroupsOptions | None = None) -> RunReport:
    report = run_groups(seed, options)
    described = _of_cluster("groups", report)
    described.figures |= {
        "client faults": len(report.options.events),
        "commits": report.commits,
        "assignments": report.assignments,
        "late requests": report.late_requests,
        "transactions": report.transactions,
    }
    return described


def run_with_acls(seed: int, options: AclOptions | None = None) -> RunReport:
    report, figures = run_acls(seed, options)
    described = _of_cluster("acls", report)
    described.figures |= {
        "changes of ACLs at nodes": figures.changes,
        "allowed items": figures.allowed,
        "denied items": figures.denied,
        "requests on fast paths": figures.fast,
    }
    return described


def _of_cluster(kind: str, report: ClusterReport) -> RunReport:
    first = report.violations[0] if report.violations else None
    return RunReport(
        kind=kind,
        seed=report.seed,
        trace_hash=report.trace_hash,
        options=report.options.to_json(),
        simulated_seconds=report.simulated_seconds,
        figures={
            "starts": report.starts,
            "faults": report.faults,
            "kills": report.kills,
            "power losses": report.power_losses,
            "acknowledged records": report.acknowledged,
            "controller epochs": report.controller_epochs,
            "leader epochs": report.leader_epochs,
            "administrative steps": report.admin_steps,
        },
        invariant=first.invariant if first else "",
        message=f"{first.invariant}: {first.message}" if first else "",
        last_events=report.last_events,
        history=report.history,
    )


def _shrink_cluster(
    kind: str, run: Callable[[int, ClusterOptions | None], ClusterReport], seed: int
) -> RunReport:
    first = run(seed, None)
    if not first.violations:
        return _of_cluster(kind, first)
    invariant = first.violations[0].invariant

    def fails(options: ClusterOptions) -> bool:
        return any(each.invariant == invariant for each in run(seed, options).violations)

    return _of_cluster(kind, run(seed, shrink_options(first.options, fails)))


def shrink_groups(seed: int) -> RunReport:
    first = run_groups(seed)
    if not first.violations:
        return run_with_groups(seed)
    invariant = first.violations[0].invariant

    def fails(options: GroupsOptions) -> bool:
        return any(each.invariant == invariant for each in run_groups(seed, options).violations)

    return run_with_groups(seed, shrink_groups_options(first.options, fails))


def shrink_acls(seed: int) -> RunReport:
    first = run_with_acls(seed)
    if not first.has_failed:
        return first

    def fails(options: AclOptions) -> bool:
        report, _ = run_acls(seed, options)
        return any(each.invariant == first.invariant for each in report.violations)

    return run_with_acls(seed, shrink_acl_options(AclOptions.from_json(first.options), fails))


def run_raft_group(seed: int) -> RunReport:
    report = run_raft(seed)
    invariant, _, _ = report.violation.partition(" ")
    return RunReport(
        kind="raft",
        seed=seed,
        trace_hash=report.trace_hash,
        options=asdict(report.options),
        simulated_seconds=report.milliseconds / 1000,
        figures={
            "steps": report.steps,
            "committed entries": report.committed,
            "epochs": report.epochs,
            "crashes": report.crashes,
            "voter changes": report.voter_changes,
            "snapshots installed": report.installs,
        },
        invariant=invariant.rstrip(":"),
        message=report.violation,
        last_events=report.last_events,
    )


Runner = Callable[[int], RunReport]

KINDS: Final[dict[str, Runner]] = {
    "storage": run_storage,
    "compaction": run_compaction,
    "node": run_whole_node,
    "raft": run_raft_group,
    "cluster": run_whole_cluster,
    "clients": run_with_clients,
    "groups": run_with_groups,
    "acls": run_with_acls,
}
SHRINKERS: Final[dict[str, Runner]] = {
    "storage": partial(_shrink_lives, run_storage),
    "compaction": partial(_shrink_lives, run_compaction),
    "node": shrink_node,
    "raft": run_raft_group,
    "cluster": partial(_shrink_cluster, "cluster", run_cluster),
    "clients": partial(_shrink_cluster, "clients", run_clients),
    "groups": shrink_groups,
    "acls": shrink_acls,
}


def run_many(
    kinds: list[str],
    *,
    first: int,
    seeds: int,
    seconds: float,
    ledger: Ledger | None = None,
) -> Iterator[RunReport]:
    """Runs seeds in order, up to a number of seeds or an amount of CPU time, which is shared evenly
    by the kinds. With a ledger, each kind continues after its last seed."""
    end = process_time() + seconds
    starts = {k: ledger.next_seed(k, first=first) if ledger else first for k in kinds}
    next_seed = dict(starts)
    spent = dict.fromkeys(kinds, 0.0)
    while process_time() < end:
        unfinished = [kind for kind in kinds if next_seed[kind] < starts[kind] + seeds]
        if not unfinished:
            return
        kind = min(unfinished, key=lambda each: spent[each])
        started = process_time()
        report = KINDS[kind](next_seed[kind])
        report.cpu_seconds = process_time() - started
        spent[kind] += report.cpu_seconds
        if ledger is not None:
            ledger.add(
                kind,
                report.seed,
                report.trace_hash,
                simulated_seconds=report.simulated_seconds,
                cpu_seconds=report.cpu_seconds,
                figures=report.figures,
                invariant=report.invariant,
            )
        next_seed[kind] += 1
        yield report


def failure_file(report: RunReport, folder: Path) -> Path:
    """Writes everything needed to reproduce the failure and to recognise it; returns the path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{report.kind}-{report.seed}.json"
    commit, changes = revision()
    content = {
        "commit": commit,
        "uncommitted": changes,
        "python": platform.python_version(),
        "kind": report.kind,
        "seed": report.seed,
        "options": report.options,
        "trace_hash": report.trace_hash,
        "invariant": report.invariant,
        "message": report.message,
        "last_events": report.last_events,
    }
    path.write_text(json.dumps(content, indent=1) + "\n")
    if report.history:
        path.with_suffix(".jsonl").write_text(report.history)
    return path


def run_file(path: Path) -> RunReport:
    """Runs the seed and options of a failure file or a regression."""
    fields = json.loads(path.read_text())
    seed, options = fields["seed"], fields["options"]
    match fields["kind"]:
        case "cluster":
            return run_whole_cluster(seed, ClusterOptions.from_json(options))
        case "clients":
            return run_with_clients(seed, ClusterOptions.from_json(options))
        case "groups":
            return run_with_groups(seed, GroupsOptions.from_json(options))
        case "acls":
            return run_with_acls(seed, AclOptions.from_json(options))
        case "node":
            return run_whole_node(seed, node_options(options))
        case kind:
            return KINDS[kind](seed)


def revision() -> tuple[str, str]:
    """Returns the commit and a hash of uncommitted changes; both are empty outside a repository."""

    def git(*arguments: str) -> bytes:
        folder = Path(__file__).parent
        result = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, check=False)
        return result.stdout if result.returncode == 0 else b""

    commit = git("rev-parse", "HEAD").decode().strip()
    difference = git("diff", "HEAD")
    return commit, hashlib.sha256(difference).hexdigest() if difference else ""
