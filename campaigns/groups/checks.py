"""Invariants of groups over a recorded history: G1, G2, G3, G5, G6.

Operations, their arguments and their results:

    join, sync, leave, beat   requests of members (classic.py, consumer.py)
    commit        {group, tp, offset, member, epoch, late?}
    offset_fetch  {group, tp}   ok {offset}: stable offsets only, -1 if there is none
    txn_end       {txn, commit, offsets: [[group, tp, offset]…], …}
    poll          {group, …}: records that were read count as processed

and probes: `member_died {group, member}`, `member_gone {group, member}` (removed by its
coordinator).

A late commit counts as another commit of its sender.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Final, NamedTuple

from lograft.simulation.checkers import Checker, Violation
from lograft.simulation.history import History, Operation

NO_OFFSET: Final = -1


class Write(NamedTuple):
    """A committed offset, and the interval in which it may have taken effect."""

    offset: int
    invoked: int
    completed: int
    is_certain: bool


def _writes(history: History) -> dict[tuple[str, str], list[Write]]:
    """Returns writes by (group, partition). One with unknown outcome may take effect at any later
    time."""
    writes: dict[tuple[str, str], list[Write]] = defaultdict(list)
    end_of_history = len(history.events)
    for each in history.operations("commit", "txn_end"):
        if each.type == "fail" or (each.f == "txn_end" and not each.arguments["commit"]):
            continue
        is_certain = each.type == "ok"
        completed = each.completed if is_certain else end_of_history
        for group, tp, offset in _offsets(each):
            writes[group, tp].append(Write(offset, each.invoked, completed, is_certain))
    return writes


def _offsets(each: Operation) -> list[tuple[str, str, int]]:
    if each.f == "commit":
        return [(each.arguments["group"], each.arguments["tp"], each.arguments["offset"])]
    return [(group, tp, offset) for group, tp, offset in each.arguments.get("offsets", ())]


def offsets_are_registers(history: History) -> Iterator[Violation]:
    """G6: a fetched offset was committed and has not been overwritten since."""
    writes = _writes(history)
    for fetch in history.operations("offset_fetch"):
        if fetch.type != "ok":
            continue
        group, tp = fetch.arguments["group"], fetch.arguments["tp"]
        found = fetch.result["offset"]
        of_place = writes[group, tp]
        #: Writes that certainly completed before the fetch; the last of them overwrote older ones.
        before = [each for each in of_place if each.is_certain and each.completed < fetch.invoked]
        floor = max((each.invoked for each in before), default=-1)
        candidates = [
            each.offset
            for each in of_place
            if each.invoked < fetch.completed and each.completed > floor
        ]
        if not before:
            candidates.append(NO_OFFSET)
        if found not in candidates:
            yield Violation(
                "G6",
                f"{group} {tp}: fetched {found}, but the committed offset is one of"
                f" {sorted(set(candidates))}",
            )


def offsets_do_not_move_back(history: History) -> Iterator[Violation]:
    """G1: a later fetch returns a lower offset only if one was committed after the earlier fetch
    started."""
    writes = _writes(history)
    fetches = [each for each in history.operations("offset_fetch") if each.type == "ok"]
    by_end = sorted(fetches, key=lambda each: each.completed)
    highest: dict[tuple[str, str], Operation] = {}
    done = 0
    for later in fetches:
        while done < len(by_end) and by_end[done].completed < later.invoked:
            earlier = by_end[done]
            place = (earlier.arguments["group"], earlier.arguments["tp"])
            best = highest.get(place)
            if best is None or earlier.result["offset"] >= best.result["offset"]:
                highest[place] = earlier
            done += 1
        place = (later.arguments["group"], later.arguments["tp"])
        best, found = highest.get(place), later.result["offset"]
        if best is None or found >= best.result["offset"]:
            continue
        if any(
            each.offset == found
            and each.completed > best.invoked
            and each.invoked < later.completed
            for each in writes[place]
        ):
            highest[place] = later
        else:
            yield Violation(
                "G1", f"{place[0]} {place[1]}: was {best.result['offset']}, then {found}"
            )


def no_stale_commits(history: History) -> Iterator[Violation]:
    """G3: fenced members cannot commit.

    Classic: a member got an assignment of a later generation before the commit was sent, or the
    member had left. Consumer: the member had left, or had received a later epoch in which it does
    not own the partition (if it does, the older epoch is valid, KIP-1251). Both: the group was
    reset after the member got its epoch."""
    #: The highest epoch of each group, and its value when the last reset started.
    highest: dict[str, int] = {}
    begun: dict[int, int] = {}
    reset: dict[str, int] = {}
    generations: dict[str, int] = {}
    left: set[tuple[str, str]] = set()
    received: dict[tuple[str, str], tuple[int, list[str]]] = {}
    ends = {each.completed: each for each in history.operations("sync", "leave", "beat", "commit")}
    starts = {each.invoked: each for each in history.operations("commit")}
    for event in history.events:
        commit = starts.get(event.index)
        if commit is not None and commit.arguments.get("reset"):
            begun[commit.invoked] = highest.get(commit.arguments["group"], -1)
        elif commit is not None:
            yield from _stale(commit, generations, left, received)
            if commit.type == "ok" and 0 <= commit.arguments["epoch"] <= reset.get(
                commit.arguments["group"], -1
            ):
                yield Violation("G3", f"{commit.arguments} succeeded after the group was reset")
        each = ends.get(event.index)
        if each is None or each.type != "ok":
            continue
        if each.f == "commit":
            if each.arguments.get("reset"):
                reset[each.arguments["group"]] = begun[each.invoked]
            continue
        epoch = each.result.get("epoch", each.arguments.get("epoch", -1))
        highest[each.arguments["group"]] = max(highest.get(each.arguments["group"], -1), epoch)
        group, member = each.arguments["group"], each.arguments["member"]
        if each.f == "sync":
            generations[group] = max(generations.get(group, -1), each.arguments["epoch"])
        elif each.f == "leave" or each.arguments["epoch"] == -1:
            left.add((group, member))
        elif each.result.get("epoch", -1) > 0:
            left.discard((group, member))
            _, assigned = received.get((group, member), (0, []))
            fresh = each.result["assigned"]
            received[group, member] = (each.result["epoch"], assigned if fresh is None else fresh)


def _stale(
    commit: Operation,
    generations: dict[str, int],
    left: set[tuple[str, str]],
    received: dict[tuple[str, str], tuple[int, list[str]]],
) -> Iterator[Violation]:
    if commit.type != "ok" or commit.arguments["epoch"] < 0:
        return
    group, member, epoch = (commit.arguments[name] for name in ("group", "member", "epoch"))
    description = f"{group}: {member} committed {commit.arguments['tp']} in epoch {epoch}"
    if (group, member) in left:
        yield Violation("G3", f"{description} after it had left")
    if generations.get(group, -1) > epoch:
        yield Violation("G3", f"{description}, but the generation is {generations[group]}")
    newest, assigned = received.get((group, member), (0, []))
    if newest > epoch and commit.arguments["tp"] not in assigned:
        yield Violation("G3", f"{description}, but its epoch is {newest} with {assigned}")


def one_owner(history: History) -> Iterator[Violation]:
    """G2: a member gets no partition that another member may still use."""
    owners: dict[tuple[str, str], str] = {}
    generations: dict[tuple[str, int, str], str] = {}
    #: A response in flight when its member is removed grants nothing.
    gone: dict[tuple[str, str], int] = {}
    operations = history.operations("beat", "sync")
    starts = {each.invoked: each for each in operations if each.f == "beat"}
    ends = {each.completed: each for each in operations}

    def release(group: str, member: str, kept: list[str] | tuple[str, ...] = ()) -> None:
        for place in [place for place, owner in owners.items() if owner == member]:
            if place[0] == group and place[1] not in kept:
                del owners[place]

    for event in history.events:
        if event.type == "probe" and event.f in ("member_died", "member_gone"):
            gone[event.v["group"], event.v["member"]] = event.index
            release(event.v["group"], event.v["member"])
        if event.index in starts:
            begun = starts[event.index]
            if begun.arguments.get("owns") is not None:
                kept = begun.arguments["owns"] if begun.arguments["epoch"] > 0 else ()
                release(begun.arguments["group"], begun.arguments["member"], kept)
        each = ends.get(event.index)
        if each is None:
            continue
        group, member = each.arguments["group"], each.arguments["member"]
        if each.type == "fail" and isinstance(each.result.get("error"), int):
            release(group, member)
        if each.type != "ok":
            continue
        if each.f == "sync":
            # A static member that rejoins gets the assignment of its previous process.
            owner_id = each.arguments["instance"] or member
            for tp in each.result["assigned"]:
                owner = generations.setdefault((group, each.arguments["epoch"], tp), owner_id)
                if owner != owner_id:
                    yield Violation(
                        "G2",
                        f"{group} {each.arguments['epoch']}: {tp} is assigned to {owner} and"
                        f" {owner_id}",
                    )
            continue
        if gone.get((group, member), -1) > each.invoked:
            continue
        for tp in each.result.get("assigned") or ():
            owner = owners.setdefault((group, tp), member)
            if owner != member:
                yield Violation("G2", f"{group}: {member} gets {tp}, which {owner} may still use")
                owners[group, tp] = member


def at_least_once(history: History) -> Iterator[Violation]:
    """G5: if members commit after processing, every group has processed every record."""
    expected: dict[str, dict[int, str]] = defaultdict(dict)
    for send in history.operations("send"):
        if send.type == "ok" and "txn" not in send.arguments:
            expected[send.arguments["tp"]][send.result["offset"]] = send.arguments["uid"]
    for final in history.operations("final_committed"):
        if final.type == "ok":
            expected[final.arguments["tp"]].update(final.result["records"])
    #: A reset may skip records below its offset.
    skipped: dict[tuple[str, str], int] = defaultdict(int)
    for commit in history.operations("commit"):
        if commit.arguments.get("reset"):
            place = (commit.arguments["group"], commit.arguments["tp"])
            skipped[place] = max(skipped[place], commit.arguments["offset"])
    processed: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for poll in history.operations("poll"):
        if poll.type == "ok" and "group" in poll.arguments:
            seen = processed[poll.arguments["group"]][poll.arguments["tp"]]
            seen.update(uid for _, uid in poll.result["records"])
    for settled in history.probes("settled"):
        group = settled.v["group"]
        for tp, offset in settled.v["offsets"]:
            for at, uid in expected[tp].items():
                if skipped[group, tp] <= at < offset and uid not in processed[group][tp]:
                    yield Violation(
                        "G5", f"{group}: {tp}@{at} {uid} was skipped without being processed"
                    )


GROUP_CHECKERS: Final[tuple[Checker, ...]] = (
    offsets_do_not_move_back,
    one_owner,
    no_stale_commits,
    at_least_once,
    offsets_are_registers,
)
