"""The end of a run: reads every partition completely and runs the checkers over the history.

The checkers do not know about retention and compaction. The records that these may remove are
derived here from the topic's settings and the remaining records, not from reports of the node."""

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
from tests.chaos.recording import PartitionClient, Run
from tests.chaos.topics import Topic
from tests.compatibility.librdkafka import read

FETCHES_MAX: Final = 100_000
SHOWN_MAX: Final = 10


def read_topics(run: Run, topics: Sequence[Topic]) -> None:
    """Records the final state of every partition."""
    with closing(run.client("final")) as client:
        for topic in topics:
            for tp in topic.of_partitions():
                read_all(run, client, topic, tp)


def read_topics_with_librdkafka(run: Run, topics: Sequence[Topic]) -> None:
    """Reads every partition with librdkafka, and records the reads as polls."""
    for topic in topics:
        for tp in topic.of_partitions():
            read_with_librdkafka(run, tp)


def read_all(run: Run, client: PartitionClient, topic: Topic, tp: TopicPartition) -> None:
    """Reads a partition from its log start offset to its end, and records its final state."""
    history, name = run.history, f"final@{tp}"
    first = client.fetch(tp, client.offset_at(tp, EARLIEST), wait_ms=0)
    start, position, end = first.log_start, first.log_start, first.high_watermark
    records: list[tuple[int, str]] = []
    bytes_read, bad_crc = 0, False
    history.record(name, "invoke", "final", tp=str(tp), offset=start)
    for _ in range(FETCHES_MAX):
        if position >= end:
            break
        fetched = client.fetch(tp, position, wait_ms=0)
        records += fetched.records
        bytes_read += fetched.bytes_read
        bad_crc |= fetched.bad_crc
        assert fetched.next_offset > position, (
            f"{tp}: no records at {position}, below the high watermark {end}"
        )
        position = fetched.next_offset
    # A power loss may destroy the newer records for which retention deleted older ones.
    had_power_loss = any(crash.v["kind"] == "power" for crash in history.probes("crash"))
    if topic.retention_bytes and (bytes_read >= topic.retention_bytes or had_power_loss):
        history.record("retention", "probe", "expired", tp=str(tp), log_start=start)
    history.record(name, "ok", "final", records=records, hw=end, log_start=start, bad_crc=bad_crc)


def read_with_librdkafka(run: Run, tp: TopicPartition) -> None:
    history, name = run.history, f"librdkafka@{tp}"
    with closing(run.client("librdkafka")) as client:
        start, end = client.offset_at(tp, EARLIEST), client.offset_at(tp, LATEST)
    history.record(name, "invoke", "poll", tp=str(tp), offset=start)
    messages = read(run.bootstrap, tp.topic, partition=tp.partition, offset=start)
    records = [(message.offset(), uid_in(message.value())) for message in messages]
    history.record(name, "ok", "poll", records=records, hw=end, log_start=start)


def read_copies(run: Run, topic: Topic) -> None:
    """Reads a topic written by transactions with read_committed, including the keys."""
    for tp in topic.of_partitions():
        run.history.record(f"copies@{tp}", "invoke", "copies", tp=str(tp))
        messages = read(run.bootstrap, tp.topic, partition=tp.partition)
        records = [
            (message.offset(), uid_in(message.value()), (message.key() or b"").decode())
            for message in messages
        ]
        run.history.record(f"copies@{tp}", "ok", "copies", records=records)


def without_superseded(history: History, topics: Iterable[Topic]) -> History:
    """Compaction may remove a record if a later one of its key exists: such a send gets an unknown
    outcome."""
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


def find_violations(run: Run, topics: Sequence[Topic]) -> list[Violation]:
    return [*check(without_superseded(run.history, topics)), *find_missing_duplicates(run.history)]


def find_missing_duplicates(history: History) -> Iterator[Violation]:
    """D1 for records that were acknowledged as duplicates, without an offset: they must exist."""
    existing: dict[str, set[str]] = defaultdict(set)
    for final in history.operations("final"):
        existing[final.arguments["tp"]] |= {uid for _, uid in final.result["records"]}
    for send in history.operations("send"):
        tp, uid = send.arguments["tp"], send.arguments["uid"]
        if (
            send.result.get("acknowledged")
            and "key" not in send.arguments
            and uid not in existing[tp]
        ):
            yield Violation(
                "D1", f"{tp}: {uid} was acknowledged as a duplicate, but does not exist"
            )


def count_lost_records(history: History) -> int:
    """Returns the number of acknowledged records that are missing without a deletion. The checkers
    decide whether this was allowed; a run whose power losses destroy nothing proves nothing."""
    contents = {
        final.arguments["tp"]: (final.result["log_start"], dict(final.result["records"]))
        for final in history.operations("final")
    }
    lost = 0
    for send in history.operations("send"):
        log_start, records = contents[send.arguments["tp"]]
        if send.type == "ok" and "key" not in send.arguments and send.result["offset"] >= log_start:
            lost += records.get(send.result["offset"]) != send.arguments["uid"]
    return lost


def summary(run: Run) -> dict[str, int]:
    sends = run.history.operations("send")
    finals = run.history.operations("final")
    return {
        "sends": len(sends),
        "acknowledged": sum(send.type == "ok" for send in sends),
        "unknown": sum(send.type == "info" for send in sends),
        "deliberately retried": sum(bool(send.arguments.get("retry")) for send in sends),
        "polls": len(run.history.operations("poll")),
        "records at the end": sum(len(final.result["records"]) for final in finals),
        "events": len(run.history.events),
    }


def check_run(
    run: Run,
    topics: Sequence[Topic],
    *,
    folder: Path,
    say: Callable[[str], None],
    found: Sequence[Violation] | None = None,
) -> None:
    """Fails the test if there are violations or unexpected client errors, and writes the history to
    `folder`. `found` are the violations, if they are already known."""
    start = time.monotonic()
    if found is None:
        found = find_violations(run, topics)
    say(f"{summary(run)}")
    say(f"violations: {len(found)} (checked in {time.monotonic() - start:.1f} s)")
    if found or run.troubles:
        (folder / "history.jsonl").write_text(run.history.to_jsonl())
    shown = "\n".join(
        f"{violation.invariant}: {violation.message}" for violation in found[:SHOWN_MAX]
    )
    assert not found, f"{len(found)} violations\n{shown}"
    assert not run.troubles, "\n".join(run.troubles[:SHOWN_MAX])
