"""Invariants of groups and transactions over the history of a run: G1, G2, G5, T1, T2, T8.

Operations, in addition to those of `lograft.simulation.checkers`:

    poll          also {group, member, generation, is_first}
    commit        {group, member, offsets: {tp: offset}}
    offset_fetch  {group}                      ok {offsets: {tp: offset}}
    transaction   {name, uids}                 ok: committed
    copies        {tp}                         ok {records: [[offset, uid, transaction]…]}

and probes: `assigned {group, member, generation, partitions}`, `aborted {name}`.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from lograft.simulation.checkers import Violation
from lograft.simulation.history import History, Operation
from tests.chaos.topics import Topic


def check_groups(history: History, groups: Sequence[str]) -> list[Violation]:
    """Checks the history; the given groups must have read all records."""
    return [
        *offsets_do_not_move_back(history),
        *one_owner(history),
        *all_records_processed(history, groups),
    ]


def offsets_do_not_move_back(history: History) -> Iterator[Violation]:
    """G1: a fetched offset, or the first offset of a poll, is not lower than one committed or
    fetched before."""
    newest: dict[tuple[str, str], int] = defaultdict(int)
    ends = sorted(history.operations("commit", "offset_fetch"), key=lambda each: each.completed)
    readings = sorted(history.operations("offset_fetch", "poll"), key=lambda each: each.invoked)
    done = 0
    for operation in readings:
        while done < len(ends) and ends[done].completed < operation.invoked:
            update_newest(newest, ends[done])
            done += 1
        if operation.type != "ok" or "group" not in operation.arguments:
            continue
        group = operation.arguments["group"]
        for tp, offset in positions_in(operation).items():
            if offset < newest[group, tp]:
                yield Violation(
                    "G1",
                    f"{group} is at {offset} of {tp}, after {newest[group, tp]}: {operation}",
                )


def update_newest(newest: dict[tuple[str, str], int], operation: Operation) -> None:
    if operation.type != "ok":
        return
    found = operation.arguments if operation.f == "commit" else operation.result
    for tp, offset in found["offsets"].items():
        key = (operation.arguments["group"], tp)
        newest[key] = max(newest[key], offset)


def positions_in(operation: Operation) -> dict[str, int]:
    if operation.f == "offset_fetch":
        return dict(operation.result["offsets"])
    if operation.arguments["is_first"]:
        return {operation.arguments["tp"]: operation.result["records"][0][0]}
    return {}


def one_owner(history: History) -> Iterator[Violation]:
    """G2: a partition has one member in a generation."""
    owners: dict[tuple[str, int, str], str] = {}
    for event in history.probes("assigned"):
        for tp in event.v["partitions"]:
            key = (event.v["group"], event.v["generation"], tp)
            owner = owners.setdefault(key, event.v["member"])
            if owner != event.v["member"]:
                yield Violation(
                    "G2",
                    f"{tp} is assigned to {owner} and {event.v['member']} in generation"
                    f" {event.v['generation']} of {event.v['group']}",
                )


def all_records_processed(history: History, groups: Sequence[str]) -> Iterator[Violation]:
    """G5: every group has read all records of the final log."""
    seen: dict[tuple[str, str], set[int]] = defaultdict(set)
    for poll in history.operations("poll"):
        if poll.type == "ok" and "group" in poll.arguments:
            offsets = {offset for offset, _ in poll.result["records"]}
            seen[poll.arguments["group"], poll.arguments["tp"]] |= offsets
    read = {(group, tp) for group, tp in seen if group in groups}
    finals = {
        final.arguments["tp"]: [offset for offset, _ in final.result["records"]]
        for final in history.operations("final")
        if final.type == "ok"
    }
    for group, tp in sorted(read):
        missing = [offset for offset in finals.get(tp, ()) if offset not in seen[group, tp]]
        if missing:
            yield Violation(
                "G5", f"{group} did not read {len(missing)} records of {tp}: {missing[:5]}"
            )


def check_copies(history: History, source: Topic) -> list[Violation]:
    return [*copied_once(history, source), *all_or_nothing(history)]


def copies_in(history: History) -> Iterator[tuple[str, str]]:
    """Yields (uid, transaction) of every copy in the final log."""
    for operation in history.operations("copies"):
        for _offset, uid, transaction in operation.result["records"]:
            yield uid, transaction


def copied_once(history: History, source: Topic) -> Iterator[Violation]:
    """T8: every record of the source is copied exactly once."""
    names = {str(tp) for tp in source.of_partitions()}
    expected = {
        uid
        for final in history.operations("final")
        if final.arguments["tp"] in names
        for _, uid in final.result["records"]
    }
    found = Counter(uid for uid, _ in copies_in(history))
    twice = sorted(uid for uid, count in found.items() if count > 1)
    if twice:
        yield Violation("T8", f"{len(twice)} records were copied twice: {twice[:5]}")
    missing = sorted(expected - found.keys())
    if missing:
        yield Violation("T8", f"{len(missing)} records were not copied: {missing[:5]}")
    unexpected = sorted(found.keys() - expected)
    if unexpected:
        yield Violation("T8", f"{len(unexpected)} copies have no original: {unexpected[:5]}")


def all_or_nothing(history: History) -> Iterator[Violation]:
    """T1, T2: no record of an aborted transaction exists, all of a committed one, and all or none
    of one whose outcome is unknown."""
    seen: dict[str, set[str]] = defaultdict(set)
    for uid, name in copies_in(history):
        seen[name].add(uid)
    aborted = {event.v["name"] for event in history.probes("aborted")}
    for transaction in history.operations("transaction"):
        name, uids = transaction.arguments["name"], set(transaction.arguments["uids"])
        copied = seen[name]
        if name in aborted and copied:
            yield Violation(
                "T1", f"{name} was aborted, but {len(copied)} of its records are visible"
            )
        elif transaction.type == "ok" and copied != uids:
            yield Violation(
                "T2", f"{name} was committed, but only {len(copied)} of {len(uids)} are visible"
            )
        elif copied not in (set(), uids):
            yield Violation("T2", f"{name}: {len(copied)} of {len(uids)} records are visible")
