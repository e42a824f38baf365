"""Runs the mutants of all kinds, and stores how soon each was caught."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from time import process_time
from typing import Final

from campaigns.acls.mutants import ACL_MUTANTS, hunt_acls
from campaigns.cluster_mutants import CLUSTER_MUTANTS, hunt_cluster
from campaigns.groups.mutants import GROUP_MUTANTS, hunt_groups
from campaigns.mutants import MUTANTS, hunt
from campaigns.node_mutants import NODE_MUTANTS, hunt_node
from campaigns.raft_mutants import RAFT_MUTANTS, hunt_raft

KINDS: Final = ("storage", "node", "raft", "cluster", "groups", "acls")


@dataclass(frozen=True, slots=True)
class Hunt:
    kind: str
    name: str
    meaning: str
    #: Number of seeds until it was caught; None if it was not.
    seeds: int | None
    #: The invariant or error that revealed it, if known.
    caught_by: str
    cpu_seconds: float
    commit: str = ""


def names_of(kind: str) -> list[str]:
    match kind:
        case "storage":
            return list(MUTANTS)
        case "node":
            return list(NODE_MUTANTS)
        case "raft":
            return [mutant.__name__ for mutant in RAFT_MUTANTS]
        case "cluster":
            return list(CLUSTER_MUTANTS)
        case "groups":
            return list(GROUP_MUTANTS)
        case "acls":
            return list(ACL_MUTANTS)
        case _:
            raise ValueError(f"unknown kind of mutants {kind!r}; known kinds: {', '.join(KINDS)}")


def hunt_one(kind: str, name: str, *, seeds_max: int, commit: str = "") -> Hunt:
    started = process_time()
    found: tuple[int, str] | None
    match kind:
        case "storage" | "node":
            search, all_of = (hunt, MUTANTS) if kind == "storage" else (hunt_node, NODE_MUTANTS)
            count = search(name, seeds_max=seeds_max)
            found = None if count is None else (count, "")
            meaning = all_of[name][0]
        case "raft":
            mutant = next(each for each in RAFT_MUTANTS if each.__name__ == name)
            found = hunt_raft(mutant, seeds_max=seeds_max)
            meaning = (mutant.__doc__ or "").strip()
        case "groups":
            found = hunt_groups(name, seeds_max=seeds_max)
            meaning = GROUP_MUTANTS[name].meaning
        case "acls":
            found = hunt_acls(name, seeds_max=seeds_max)
            meaning = ACL_MUTANTS[name][0]
        case _:
            found = hunt_cluster(name, seeds_max=seeds_max)
            meaning = CLUSTER_MUTANTS[name].meaning
    seeds, caught_by = (None, "") if found is None else found
    caught_by = caught_by.partition(" ")[0].rstrip(":")
    cpu_seconds = round(process_time() - started, 1)
    return Hunt(kind, name, meaning, seeds, caught_by, cpu_seconds, commit)


def hunt_all(
    kinds: list[str], *, seeds_max: int, commit: str, results: Path | None
) -> Iterator[Hunt]:
    """Yields all hunts. Hunts in the file of results are not repeated; new ones are appended."""
    known = {(each.kind, each.name): each for each in read_hunts(results)}
    for kind in kinds:
        for name in names_of(kind):
            done = known.get((kind, name))
            if done is None:
                done = hunt_one(kind, name, seeds_max=seeds_max, commit=commit)
                if results is not None:
                    results.parent.mkdir(parents=True, exist_ok=True)
                    with results.open("a") as file:
                        file.write(json.dumps(asdict(done), sort_keys=True) + "\n")
            yield done


def read_hunts(path: Path | None) -> list[Hunt]:
    if path is None or not path.exists():
        return []
    return [Hunt(**json.loads(line)) for line in path.read_text().splitlines() if line.strip()]
