"""What must hold of groups and transactions, over the history of a run: G1, G2, G5, T1, T2, T8.

Operations and their values, beside those of `lograft.simulation.checkers`:

    poll          asked also {group, member, generation, is_first}
    commit        asked {group, member, offsets: {tp: offset}}
    offset_fetch  asked {group}                      ok {offsets: {tp: offset}}
    transaction   asked {name, uids}                 ok: committed
    copies        asked {tp}                         ok {records: [[offset, uid, transaction]…]}

and probes: `assigned {group, member, generation, partitions}`, `aborted {name}`.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from lograft.simulation.checkers import Violation
from lograft.simulation.history import History, Operation
from tests.chaos.topics import Topic


def check_groups(history: History, groups: Sequence[str]) -> list[Violation]:
    """`groups`: those that process after they have read, and so have to read everything."""
    return [
        *positions_never_go_back(history),
        *one_owner(history),
        *everything_processed(history, groups),
    ]


def positions_never_go_back(history: History) -> Iterator[Violation]:
    """G1: who asks for a position, or begins at it, sees what was committed or seen before."""
    newest: dict[tuple[str, str], int] = defaultdict(int)
    ends = sorted(history.operations("commit", "offset_fetch"), key=lambda each: each.completed)
    asking = sorted(history.operations("offset_fetch", "poll"), key=lambda each: each.invoked)
    done = 0
    for operation in asking:
        while done < len(ends) and ends[done].completed < operation.invoked:
            note_positions(newest, ends[done])
            done += 1
        if operation.type != "ok" or "group" not in operation.arguments:
            continue
        group = operation.arguments["group"]
        for tp, offset in positions_in(operation).items():
            if offset < newest[group, tp]:
                yield Violation(
                    "G1",
                    f"{group} is at {offset} of {tp}, it was at {newest[group, tp]}: {operation}",
                )


def note_positions(newest: dict[tuple[str, str], int], operation: Operation) -> None:
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
    """G2: in one generation a partition has one member."""
    owners: dict[tuple[str, int, str], str] = {}
    for event in history.probes("assigned"):
        for tp in event.v["partitions"]:
            key = (event.v["group"], event.v["generation"], tp)
            owner = owners.setdefault(key, event.v["member"])
            if owner != event.v["member"]:
                yield Violation(
                    "G2",
                    f"{tp} belongs to {owner} and to {event.v['member']} in generation"
                    f" {event.v['generation']} of {event.v['group']}",
                )


def everything_processed(history: History, groups: Sequence[str]) -> Iterator[Violation]:
    """G5: what is in the log at the end has been read by each group."""
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
            yield Violation("G5", f"{group} left out {len(missing)} of {tp}: {missing[:5]}")


def check_copies(history: History, source: Topic) -> list[Violation]:
    return [*copied_once(history, source), *all_or_nothing(history)]


def copies_in(history: History) -> Iterator[tuple[str, str]]:
    """(uid, transaction) of every copy that is there in the end."""
    for operation in history.operations("copies"):
        for _offset, uid, transaction in operation.result["records"]:
            yield uid, transaction


def copied_once(history: History, source: Topic) -> Iterator[Violation]:
    """T8: the copy holds what the source holds, each once."""
    names = {str(tp) for tp in source.of_partitions()}
    wanted = {
        uid
        for final in history.operations("final")
        if final.arguments["tp"] in names
        for _, uid in final.result["records"]
    }
    found = Counter(uid for uid, _ in copies_in(history))
    twice = sorted(uid for uid, count in found.items() if count > 1)
    if twice:
        yield Violation("T8", f"{len(twice)} records were copied twice: {twice[:5]}")
    missing = sorted(wanted - found.keys())
    if missing:
        yield Violation("T8", f"{len(missing)} records were not copied: {missing[:5]}")
    strange = sorted(found.keys() - wanted)
    if strange:
        yield Violation("T8", f"{len(strange)} copies of nothing: {strange[:5]}")


def all_or_nothing(history: History) -> Iterator[Violation]:
    """T1, T2: nothing of an aborted transaction is there, all of a committed one, and of one whose
    end is unknown all or nothing."""
    seen: dict[str, set[str]] = defaultdict(set)
    for uid, name in copies_in(history):
        seen[name].add(uid)
    aborted = {event.v["name"] for event in history.probes("aborted")}
    for transaction in history.operations("transaction"):
        name, uids = transaction.arguments["name"], set(transaction.arguments["uids"])
        there = seen[name]
        if name in aborted and there:
            yield Violation("T1", f"{name} was aborted, {len(there)} of its records are read")
        elif transaction.type == "ok" and there != uids:
            yield Violation("T2", f"{name} was committed, {len(there)} of {len(uids)} are there")
        elif there not in (set(), uids):
            yield Violation("T2", f"of {name} {len(there)} of {len(uids)} are there")
