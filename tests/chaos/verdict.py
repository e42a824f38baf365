"""The end of a run: one full read of every partition, then the checkers over the history.

The checkers know nothing of retention and compaction. What these may take is said here, from the
topic's settings and the records that are left, never from what the node says it did.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final

from lograft.model.types import TopicPartition
from lograft.simulation.checkers import Violation, check
from lograft.simulation.history import History
from tests.chaos.payloads import uid_in
from tests.chaos.raw_client import EARLIEST, LATEST
from tests.chaos.recording import Asking, Run
from tests.chaos.topics import Topic
from tests.compatibility.librdkafka import read

FETCHES_MAX: Final = 100_000
SHOWN_MAX: Final = 10


def read_everything(run: Run, topics: Sequence[Topic]) -> None:
    """Records the final state of every partition."""
    with closing(run.client("final")) as client:
        for topic in topics:
            for tp in topic.of_partitions():
                read_all(run, client, topic, tp)


def read_everything_again(run: Run, topics: Sequence[Topic]) -> None:
    """The same with a real client; goes into the history as polls."""
    for topic in topics:
        for tp in topic.of_partitions():
            read_again(run, tp)


def read_all(run: Run, client: Asking, topic: Topic, tp: TopicPartition) -> None:
    """Reads from log start to the end and records it as the partition's final state."""
    history, name = run.history, f"final@{tp}"
    first = client.fetch(tp, client.offset_at(tp, EARLIEST), wait_ms=0)
    start, position, end = first.log_start, first.log_start, first.high_watermark
    records: list[tuple[int, str]] = []
    bytes_read, bad_crc = 0, False
    history.record(name, "invoke", "final", tp=str(tp), offset=start)
    for _ in range(FETCHES_MAX):
        if position >= end:
            break
        got = client.fetch(tp, position, wait_ms=0)
        records += got.records
        bytes_read += got.bytes_read
        bad_crc |= got.bad_crc
        assert got.next_offset > position, f"{tp}: nothing to read at {position} of {end}"
        position = got.next_offset
    # A power loss may take the newer records for which older ones had made room.
    had_power_loss = any(crash.v["kind"] == "power" for crash in history.probes("crash"))
    if topic.retention_bytes and (bytes_read >= topic.retention_bytes or had_power_loss):
        history.record("retention", "probe", "expired", tp=str(tp), log_start=start)
    history.record(name, "ok", "final", records=records, hw=end, log_start=start, bad_crc=bad_crc)


def read_again(run: Run, tp: TopicPartition) -> None:
    history, name = run.history, f"again@{tp}"
    with closing(run.client("again")) as client:
        start, end = client.offset_at(tp, EARLIEST), client.offset_at(tp, LATEST)
    history.record(name, "invoke", "poll", tp=str(tp), offset=start)
    messages = read(run.bootstrap, tp.topic, partition=tp.partition, offset=start)
    records = [(message.offset(), uid_in(message.value())) for message in messages]
    history.record(name, "ok", "poll", records=records, hw=end, log_start=start)


def read_copies(run: Run, topic: Topic) -> None:
    """What read_committed shows of a topic that transactions wrote, with each record's key."""
    for tp in topic.of_partitions():
        run.history.record(f"copies@{tp}", "invoke", "copies", tp=str(tp))
        messages = read(run.bootstrap, tp.topic, partition=tp.partition)
        records = [
            (message.offset(), uid_in(message.value()), (message.key() or b"").decode())
            for message in messages
        ]
        run.history.record(f"copies@{tp}", "ok", "copies", records=records)


def without_superseded(history: History, topics: Iterable[Topic]) -> History:
    """Of a compacted topic a record may be gone once a later one of its key is there: such a send
    counts as one of unknown outcome."""
    compacted = {str(tp) for topic in topics if topic.keys for tp in topic.of_partitions()}
    key_of = {
        send.arguments["uid"]: send.arguments["key"]
        for send in history.operations("send")
        if send.arguments["tp"] in compacted
    }
    last: dict[tuple[str, str], int] = defaultdict(int)
    for final in history.operations("final"):
        tp = final.arguments["tp"]
        if tp in compacted:
            for offset, uid in final.result["records"]:
                last[tp, key_of[uid]] = max(last[tp, key_of[uid]], offset)
    superseded = {
        send.completed
        for send in history.operations("send")
        if send.type == "ok"
        and send.arguments["tp"] in compacted
        and send.result["offset"] < last[send.arguments["tp"], send.arguments["key"]]
    }
    changed = History()
    changed.events = [
        replace(event, type="info") if event.index in superseded else event
        for event in history.events
    ]
    return changed


def violations(run: Run, topics: Sequence[Topic]) -> list[Violation]:
    return [*check(without_superseded(run.history, topics)), *missing_repeats(run.history)]


def missing_repeats(history: History) -> Iterator[Violation]:
    """D1 for records that were acknowledged without an offset: they are somewhere."""
    there: dict[str, set[str]] = defaultdict(set)
    for final in history.operations("final"):
        there[final.arguments["tp"]] |= {uid for _, uid in final.result["records"]}
    for send in history.operations("send"):
        tp, uid = send.arguments["tp"], send.arguments["uid"]
        if send.result.get("acknowledged") and "key" not in send.arguments and uid not in there[tp]:
            yield Violation("D1", f"{tp}: {uid} was acknowledged as a repeat and is not there")


def taken_by_power(history: History) -> int:
    """Acknowledged records that are gone although nobody deleted them. The checkers say whether
    that was allowed; a run with power losses that takes nothing has shown nothing."""
    contents = {
        final.arguments["tp"]: (final.result["log_start"], dict(final.result["records"]))
        for final in history.operations("final")
    }
    gone = 0
    for send in history.operations("send"):
        log_start, records = contents[send.arguments["tp"]]
        if send.type == "ok" and "key" not in send.arguments and send.result["offset"] >= log_start:
            gone += records.get(send.result["offset"]) != send.arguments["uid"]
    return gone


def summary(run: Run) -> dict[str, int]:
    sends = run.history.operations("send")
    finals = run.history.operations("final")
    return {
        "sends": len(sends),
        "acknowledged": sum(send.type == "ok" for send in sends),
        "unknown": sum(send.type == "info" for send in sends),
        "retried on purpose": sum(bool(send.arguments.get("retry")) for send in sends),
        "polls": len(run.history.operations("poll")),
        "records at the end": sum(len(final.result["records"]) for final in finals),
        "events": len(run.history.events),
    }


def judge(
    run: Run,
    topics: Sequence[Topic],
    *,
    folder: Path,
    say: Callable[[str], None],
    found: Sequence[Violation] | None = None,
) -> None:
    """Fails the test when the history or a client has something to complain about; the history is
    then in `folder`. `found`: what was wrong, where the caller has looked already."""
    begun = time.monotonic()
    if found is None:
        found = violations(run, topics)
    say(f"{summary(run)}")
    say(f"violations: {len(found)} (checked in {time.monotonic() - begun:.1f} s)")
    if found or run.troubles:
        (folder / "history.jsonl").write_text(run.history.to_jsonl())
    shown = "\n".join(f"{one.invariant}: {one.message}" for one in found[:SHOWN_MAX])
    assert not found, f"{len(found)} violations\n{shown}"
    assert not run.troubles, "\n".join(run.troubles[:SHOWN_MAX])
