"""What groups promise, over a recorded history: G1, G2, G3, G5, G6.

    join, sync, leave, beat   what members ask, and were told (classic.py, consumer.py)
    commit        asked {group, tp, offset, member, epoch, late?}
    offset_fetch  asked {group, tp}   ok {offset}: stable ones only, -1 if there is none
    txn_end       asked {txn, commit, offsets: [[group, tp, offset]…], …}
    poll          asked {group, …}: what was read counts as processed

and probes: `member_died {group, member}`, `member_gone {group, member}` (its coordinator has
forgotten it).

A commit that comes late counts as one more commit of whoever sent it.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Final, NamedTuple

from lograft.simulation.checkers import Checker, Violation
from lograft.simulation.history import History, Operation

NO_OFFSET: Final = -1


class Write(NamedTuple):
    """A committed offset, and when it may have come to count."""

    offset: int
    invoked: int
    completed: int
    is_certain: bool


def _writes(history: History) -> dict[tuple[str, str], list[Write]]:
    """By (group, partition). What nobody knows the end of may happen at any later time."""
    writes: dict[tuple[str, str], list[Write]] = defaultdict(list)
    never = len(history.events)
    for each in history.operations("commit", "txn_end"):
        if each.type == "fail" or (each.f == "txn_end" and not each.asked["commit"]):
            continue
        is_certain = each.type == "ok"
        completed = each.completed if is_certain else never
        for group, tp, offset in _offsets(each):
            writes[group, tp].append(Write(offset, each.invoked, completed, is_certain))
    return writes


def _offsets(each: Operation) -> list[tuple[str, str, int]]:
    if each.f == "commit":
        return [(each.asked["group"], each.asked["tp"], each.asked["offset"])]
    return [(group, tp, offset) for group, tp, offset in each.asked.get("offsets", ())]


def offsets_are_registers(history: History) -> Iterator[Violation]:
    """G6: an offset that is fetched was committed, and by nobody whom another overwrote since."""
    writes = _writes(history)
    for fetch in history.operations("offset_fetch"):
        if fetch.type != "ok":
            continue
        group, tp = fetch.asked["group"], fetch.asked["tp"]
        found = fetch.answered["offset"]
        of_place = writes[group, tp]
        #: The last that surely counted before the fetch began: older ones are overwritten.
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
                "G6", f"{group} {tp}: fetched {found}, committed may be {sorted(set(candidates))}"
            )


def offsets_never_go_back(history: History) -> Iterator[Violation]:
    """G1: a later fetch finds less only if less was committed after the earlier one began."""
    writes = _writes(history)
    fetches = [each for each in history.operations("offset_fetch") if each.type == "ok"]
    by_end = sorted(fetches, key=lambda each: each.completed)
    highest: dict[tuple[str, str], Operation] = {}
    done = 0
    for later in fetches:
        while done < len(by_end) and by_end[done].completed < later.invoked:
            earlier = by_end[done]
            place = (earlier.asked["group"], earlier.asked["tp"])
            best = highest.get(place)
            if best is None or earlier.answered["offset"] >= best.answered["offset"]:
                highest[place] = earlier
            done += 1
        place = (later.asked["group"], later.asked["tp"])
        best, found = highest.get(place), later.answered["offset"]
        if best is None or found >= best.answered["offset"]:
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
                "G1", f"{place[0]} {place[1]}: was {best.answered['offset']}, then {found}"
            )


def no_stale_commits(history: History) -> Iterator[Violation]:
    """G3: who has been overtaken commits nothing.

    Classic: somebody got an assignment of a later generation before the commit was sent, or the
    member had left. Consumer: the member had left, or was told a later epoch in which the
    partition is not its own (with it the older epoch is as good, KIP-1251). Both: the group was
    reset since the member got its epoch.
    """
    #: The highest epoch told to anybody, and what it was when the last reset began.
    highest: dict[str, int] = {}
    begun: dict[int, int] = {}
    reset: dict[str, int] = {}
    generations: dict[str, int] = {}
    left: set[tuple[str, str]] = set()
    told: dict[tuple[str, str], tuple[int, list[str]]] = {}
    ends = {each.completed: each for each in history.operations("sync", "leave", "beat", "commit")}
    starts = {each.invoked: each for each in history.operations("commit")}
    for event in history.events:
        commit = starts.get(event.index)
        if commit is not None and commit.asked.get("reset"):
            begun[commit.invoked] = highest.get(commit.asked["group"], -1)
        elif commit is not None:
            yield from _stale(commit, generations, left, told)
            if commit.type == "ok" and 0 <= commit.asked["epoch"] <= reset.get(
                commit.asked["group"], -1
            ):
                yield Violation("G3", f"{commit.asked} counted, the group was reset before")
        each = ends.get(event.index)
        if each is None or each.type != "ok":
            continue
        if each.f == "commit":
            if each.asked.get("reset"):
                reset[each.asked["group"]] = begun[each.invoked]
            continue
        epoch = each.answered.get("epoch", each.asked.get("epoch", -1))
        highest[each.asked["group"]] = max(highest.get(each.asked["group"], -1), epoch)
        group, member = each.asked["group"], each.asked["member"]
        if each.f == "sync":
            generations[group] = max(generations.get(group, -1), each.asked["epoch"])
        elif each.f == "leave" or each.asked["epoch"] == -1:
            left.add((group, member))
        elif each.answered.get("epoch", -1) > 0:
            left.discard((group, member))
            _, assigned = told.get((group, member), (0, []))
            fresh = each.answered["assigned"]
            told[group, member] = (each.answered["epoch"], assigned if fresh is None else fresh)


def _stale(
    commit: Operation,
    generations: dict[str, int],
    left: set[tuple[str, str]],
    told: dict[tuple[str, str], tuple[int, list[str]]],
) -> Iterator[Violation]:
    if commit.type != "ok" or commit.asked["epoch"] < 0:
        return
    group, member, epoch = (commit.asked[name] for name in ("group", "member", "epoch"))
    who = f"{group}: {member} committed {commit.asked['tp']} in epoch {epoch}"
    if (group, member) in left:
        yield Violation("G3", f"{who} after it had left")
    if generations.get(group, -1) > epoch:
        yield Violation("G3", f"{who}, but the generation is {generations[group]}")
    newest, assigned = told.get((group, member), (0, []))
    if newest > epoch and commit.asked["tp"] not in assigned:
        yield Violation("G3", f"{who}, but is in {newest} and has {assigned}")


def one_owner(history: History) -> Iterator[Violation]:
    """G2: nobody gets a partition that another may still use."""
    owners: dict[tuple[str, str], str] = {}
    generations: dict[tuple[str, int, str], str] = {}
    #: An answer that was on its way when its member was given up grants nothing.
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
            if begun.asked.get("owns") is not None:
                kept = begun.asked["owns"] if begun.asked["epoch"] > 0 else ()
                release(begun.asked["group"], begun.asked["member"], kept)
        each = ends.get(event.index)
        if each is None:
            continue
        group, member = each.asked["group"], each.asked["member"]
        if each.type == "fail" and isinstance(each.answered.get("error"), int):
            release(group, member)
        if each.type != "ok":
            continue
        if each.f == "sync":
            # A static member that comes back takes over what its former self had.
            who = each.asked["instance"] or member
            for tp in each.answered["assigned"]:
                owner = generations.setdefault((group, each.asked["epoch"], tp), who)
                if owner != who:
                    yield Violation(
                        "G2", f"{group} {each.asked['epoch']}: {tp} is {owner}'s and {who}'s"
                    )
            continue
        if gone.get((group, member), -1) > each.invoked:
            continue
        for tp in each.answered.get("assigned") or ():
            owner = owners.setdefault((group, tp), member)
            if owner != member:
                yield Violation("G2", f"{group}: {member} gets {tp}, which {owner} may still use")
                owners[group, tp] = member


def at_least_once(history: History) -> Iterator[Violation]:
    """G5: with commits after processing, every record was processed by every group."""
    wanted: dict[str, dict[int, str]] = defaultdict(dict)
    for send in history.operations("send"):
        if send.type == "ok" and "txn" not in send.asked:
            wanted[send.asked["tp"]][send.answered["offset"]] = send.asked["uid"]
    for final in history.operations("final_committed"):
        if final.type == "ok":
            wanted[final.asked["tp"]].update(final.answered["records"])
    #: Who resets a group may have it leave out what lies before.
    skipped: dict[tuple[str, str], int] = defaultdict(int)
    for commit in history.operations("commit"):
        if commit.asked.get("reset"):
            place = (commit.asked["group"], commit.asked["tp"])
            skipped[place] = max(skipped[place], commit.asked["offset"])
    processed: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for poll in history.operations("poll"):
        if poll.type == "ok" and "group" in poll.asked:
            seen = processed[poll.asked["group"]][poll.asked["tp"]]
            seen.update(uid for _, uid in poll.answered["records"])
    for settled in history.probes("settled"):
        group = settled.v["group"]
        for tp, offset in settled.v["offsets"]:
            for at, uid in wanted[tp].items():
                if skipped[group, tp] <= at < offset and uid not in processed[group][tp]:
                    yield Violation("G5", f"{group}: {tp}@{at} {uid} was passed, not processed")


GROUP_CHECKERS: Final[tuple[Checker, ...]] = (
    offsets_never_go_back,
    one_owner,
    no_stale_commits,
    at_least_once,
    offsets_are_registers,
)
