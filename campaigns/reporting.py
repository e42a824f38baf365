"""docs/reliability.md, made from what campaigns measured: the ledger and the mutants' results."""

import json
import platform
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from campaigns.ledger import Line, totals
from campaigns.mutant_hunt import KINDS as MUTANT_KINDS
from campaigns.mutant_hunt import Hunt

WHAT: Final = {
    "raft": "the Raft core alone: messages lost, late and twice, power losses, pauses, partitions,"
    " voters that change, snapshots",
    "cluster": "whole clusters of 3 to 6 nodes: real brokers and controllers, producers, consumers,"
    " administrators, faults 1-8, 12 and 13, isr and raft topics, switches between them",
    "clients": "the same clusters under Lograft's own client: producers and consumers of"
    " `lograft.client`, which find leaders, retry and keep order by themselves",
    "groups": "the same clusters with other clients: members of classic and consumer groups,"
    " transactional copiers and transfers, twins and zombies; late and repeated requests (fault 5),"
    " faults aimed at coordinators, switches of their topics",
    "node": "one whole node under kills, power losses, failing disks and cut connections",
    "storage": "one log, crashed at any disk operation, against a plain list",
    "compaction": "one compacted log, crashed at any disk operation",
}
HEAD: Final = """# Reliability: what was tried, and what was found

Made by `python -m campaigns report` from `{ledger}` and `{mutants}`; do not edit.
Python {python}. A schedule is one seed: it decides options, faults and the order of every step, and
gives the same trace hash again. How it works: [internals/simulation.md](internals/simulation.md).

## Schedules

| kind | schedules | distinct traces | simulated hours | CPU minutes | seeds that failed | commit |
|---|---|---|---|---|---|---|
"""
PROMISES: Final = """
## What the checkers hold a cluster to

Acknowledged with acks=all is there in the end, at its offset (D1); an offset holds one record for
all who look, and for good (D2, D3); order in real time (D4); no skips (D5); watermarks (D6); equal
logs, byte for byte (D7); enough replicas, on disk where that is promised, before anything counts as
committed (D8); recovery finds what was safe, producers are as in a replay (D9); no bad CRC reaches
a client (D10); the last value of a key survives compaction (D11); no duplicates, order, sequences
and producer ids of idempotent producers (P1-P4); one leader an epoch, votes that stay, committed
metadata on a majority of disks, equal images, metadata that never goes back, sound ISR and ELR, no
membership in sync without the data, no data given up that the metadata does not take away, one
voter change at a time (M1-M9); offsets that do not go back unasked, one owner for a partition,
nobody commits who was overtaken, groups that come to rest, everything processed, nothing committed
is lost with its coordinator (G1-G6); readers of committed records get nothing aborted and nothing
before its commit, transactions whole or not at all, none that reads itself in a circle, none that
hangs, none that a late request of another changes, copies once each, sums that stay (T1-T9); a
healed cluster serves within 30 seconds, groups catch up, a minority that is down stops nobody, and
no node ends of itself (L1-L4).

Bounds: any number of kills, pauses and partitions. Lossy crashes (power loss, failing disk) as many
as promised: fewer than `min.insync.replicas` at a time in isr mode, any number where topics fsync
before they acknowledge (`flush.messages=1`, raft mode) and in the metadata quorum.

Not promised: acks=1 and acks=0 over the loss of a leader; that a process restarted after a failed
fsync can tell bytes on the metal from bytes that only the page cache holds.
"""


def report(
    lines: Iterable[Line],
    hunts: Iterable[Hunt],
    *,
    ledger: str,
    mutants: str,
    regressions: Path,
    still_fails: Callable[[str, int], bool],
) -> str:
    """`still_fails` runs a seed of a kind again."""
    lines, hunts = list(lines), list(hunts)
    parts = [HEAD.format(ledger=ledger, mutants=mutants, python=platform.python_version())]
    by_kind = totals(lines)
    for kind in [kind for kind in WHAT if kind in by_kind]:
        total = by_kind[kind]
        parts.append(
            f"| {kind} | {total.seeds:,} | {total.distinct_traces:,} |"
            f" {total.simulated_seconds / 3600:.2f} | {total.cpu_seconds / 60:.1f} |"
            f" {_failed(total, still_fails)} | {total.commit[:10]} |\n"
        )
    parts.append("\n")
    parts += [f"- {kind}: {WHAT[kind]}\n" for kind in WHAT if kind in by_kind]
    parts.append("\n| kind | what happened on the way |\n|---|---|\n")
    for kind in [kind for kind in WHAT if kind in by_kind]:
        figures = ", ".join(f"{n:,} {name}" for name, n in by_kind[kind].figures.items())
        parts.append(f"| {kind} | {figures} |\n")
    parts.append(PROMISES)
    parts += _regressions(regressions)
    parts += _mutants(hunts)
    return "".join(parts)


def _failed(total: Line, still_fails: Callable[[str, int], bool]) -> str:
    if not total.violations:
        return "0"
    found = ", ".join(sorted({invariant for _, invariant in total.violations}))
    still = [seed for seed, _ in total.violations if still_fails(total.kind, seed)]
    now = "none fails today" if not still else f"today: {', '.join(map(str, still))}"
    return f"{len(total.violations)} ({found}); {now}"


def _regressions(folder: Path) -> list[str]:
    files = sorted(folder.glob("*.json"))
    parts = ["\n## Found on the way, fixed, and kept as regressions\n\n"]
    if not files:
        return [*parts, "None so far.\n"]
    parts.append("| file | invariant | what it was |\n|---|---|---|\n")
    for path in files:
        fields = json.loads(path.read_text())
        note = fields.get("note") or fields["message"].splitlines()[0][:200]
        parts.append(f"| {path.name} | {fields['invariant']} | {note} |\n")
    return parts


def _mutants(hunts: list[Hunt]) -> list[str]:
    caught = [hunt for hunt in hunts if hunt.seeds is not None]
    counts = sorted(hunt.seeds or 0 for hunt in caught)
    median = counts[len(counts) // 2] if counts else 0
    parts = [
        "\n## Safeguards taken out\n\n",
        f"{len(caught)} of {len(hunts)} mutants caught; half of them within {median} seed(s). A"
        " checker that was never seen failing is not a checker.\n",
    ]
    for kind in MUTANT_KINDS:
        of_kind = [hunt for hunt in hunts if hunt.kind == kind]
        if not of_kind:
            continue
        parts.append(
            f"\n| {kind} | seeds to kill | caught by | what is missing |\n|---|---|---|---|\n"
        )
        for hunt in of_kind:
            seeds = "**got away**" if hunt.seeds is None else str(hunt.seeds)
            parts.append(f"| {hunt.name} | {seeds} | {hunt.caught_by} | {hunt.meaning} |\n")
    return parts
