"""kafka-reassign-partitions: move replicas of partitions to other brokers."""

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lograft.cli.client_runner import run_admin
from lograft.cli.kafka.log_dir_moves import cancel_moves, report_moves, start_moves
from lograft.cli.kafka.tools import Parser, settings_of
from lograft.cli.reassign import (
    LogDirs,
    Wanted,
    log_dirs_from_json,
    make_plan,
    wanted_from_json,
)
from lograft.client.admin import (
    Admin,
    ConfigChange,
    Operation,
    TopicPartition,
    broker_resource,
    topic_resource,
)
from lograft.client.errors import ClientError
from lograft.model.errors import InvalidInput

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LOG_DIR_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
LEADERS, FOLLOWERS = (
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
)


def run(arguments: Sequence[str]) -> int:
    parser = Parser("kafka-reassign-partitions", "Move partitions between brokers.")
    parser.add_connection()
    for flag in ("generate", "execute", "verify", "cancel", "list", "additional"):
        parser.add_argument(f"--{flag}", action="store_true")
    parser.add_argument("--preserve-throttles", action="store_true")
    parser.add_argument("--disable-rack-aware", action="store_true")
    parser.add_argument("--disallow-replication-factor-change", action="store_true")
    parser.add_argument("--reassignment-json-file", metavar="FILE")
    parser.add_argument("--topics-to-move-json-file", metavar="FILE")
    parser.add_argument("--broker-list", metavar="ID,…")
    parser.add_argument("--throttle", type=int, default=-1, metavar="BYTES_PER_SECOND")
    parser.add_argument(
        "--replica-alter-log-dirs-throttle", type=int, default=-1, metavar="BYTES_PER_SECOND"
    )
    parser.add_argument("--timeout", type=int, default=10_000, metavar="MS")
    given = parser.parse_args(list(arguments))
    action = parser.require_one(given, "generate", "execute", "verify", "cancel", "list")
    works = {
        "generate": _generate,
        "execute": _execute,
        "verify": _verify,
        "cancel": _cancel,
        "list": _list,
    }
    try:
        run_admin(settings_of(parser, given), lambda admin: works[action](admin, given))
    except BrokenPipeError:
        raise  # The reader of the output has closed the pipe: `main` exits quietly.
    except (ClientError, InvalidInput, OSError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    return 0


async def _list(admin: Admin, _given: argparse.Namespace) -> None:
    ongoing = await admin.list_reassignments()
    if not ongoing:
        print("No partition reassignments found.")
        return
    print("Current partition reassignments:")
    for place, one in sorted(ongoing.items()):
        adding = f" adding: {_nodes(one.adding)}." if one.adding else ""
        removing = f" removing: {_nodes(one.removing)}." if one.removing else ""
        print(f"{place}: replicas: {_nodes(one.replicas)}.{adding}{removing}")


async def _generate(admin: Admin, given: argparse.Namespace) -> None:
    """The proposal moves as few replicas as it can (Kafka's deals them out anew)."""
    if given.topics_to_move_json_file is None or given.broker_list is None:
        raise InvalidInput("--generate needs --topics-to-move-json-file and --broker-list")
    topics = _topics_to_move(given.topics_to_move_json_file)
    brokers = [int(one) for one in given.broker_list.split(",")]
    load, moves = await make_plan(admin, brokers=brokers, topics=topics)
    now = {TopicPartition(one.topic, one.partition): one.replicas for one in load.holdings}
    then = now | {TopicPartition(one.topic, one.partition): one.after for one in moves}
    print("Current partition replica assignment")
    print(_assignment(now))
    print("\nProposed partition reassignment configuration")
    print(_assignment(then))


async def _execute(admin: Admin, given: argparse.Namespace) -> None:
    wanted, log_dirs = _read(given)
    now = await _replicas(admin, wanted)
    ongoing = await admin.list_reassignments()
    if ongoing and not given.additional:
        raise InvalidInput(
            "Cannot execute because there is an existing partition assignment. Use --additional to"
            " override this and create a new partition assignment in addition to the existing one."
        )
    print("Current partition replica assignment\n")
    print(_assignment(now))
    print("\nSave this to use as the --reassignment-json-file option during rollback")
    log_dir_rate = given.replica_alter_log_dirs_throttle
    if given.throttle >= 0:
        await _throttle(admin, now, wanted, given.throttle)
    if log_dir_rate >= 0:
        await _throttle_log_dirs(admin, log_dirs, log_dir_rate)
    if given.throttle >= 0 or log_dir_rate >= 0:
        print("Warning: You must run --verify periodically, until the reassignment completes, to")
        print("ensure the throttle is removed.")
    await admin.reassign(wanted)
    names = ",".join(str(place) for place in sorted(wanted))
    plural = "s" if len(wanted) > 1 else ""
    print(f"Successfully started partition reassignment{plural} for {names}")
    await start_moves(admin, log_dirs, timeout_ms=given.timeout)


async def _verify(admin: Admin, given: argparse.Namespace) -> None:
    wanted, log_dirs = _read(given)
    ongoing = await admin.list_reassignments()
    now = await _replicas(admin, wanted)
    print("Status of partition reassignment:")
    for place, replicas in sorted(wanted.items()):
        if place in ongoing:
            print(f"Reassignment of partition {place} is still in progress.")
        elif tuple(now[place]) == tuple(replicas):
            print(f"Reassignment of partition {place} is completed.")
        else:
            print(
                f"There is no active reassignment of partition {place}, but replica set is"
                f" {_nodes(now[place])} rather than {_nodes(replicas)}."
            )
    are_moved = await report_moves(admin, log_dirs)
    if not ongoing and are_moved and not given.preserve_throttles:
        print()
        await _clear_throttles(admin, wanted)


async def _cancel(admin: Admin, given: argparse.Namespace) -> None:
    wanted, log_dirs = _read(given)
    ongoing = await admin.list_reassignments()
    chosen = sorted(place for place in wanted if place in ongoing)
    if chosen:
        await admin.reassign(dict.fromkeys(chosen))
        plural = "s" if len(chosen) > 1 else ""
        names = ",".join(map(str, chosen))
        print(f"Successfully cancelled partition reassignment{plural} for: {names}")
    else:
        print("None of the specified partition reassignments are active.")
    await cancel_moves(admin, log_dirs, timeout_ms=given.timeout)
    if not given.preserve_throttles:
        await _clear_throttles(admin, wanted)


async def _throttle(
    admin: Admin,
    now: Mapping[TopicPartition, Sequence[int]],
    wanted: Wanted,
    rate: int,
) -> None:
    """Those who have it send at most so fast, and those who get it take at most so fast."""
    brokers = {node for one in (*now.values(), *wanted.values()) for node in one}
    leaders: dict[str, list[str]] = {}
    followers: dict[str, list[str]] = {}
    for place, replicas in wanted.items():
        had = now[place]
        leaders.setdefault(place.topic, []).extend(f"{place.partition}:{one}" for one in had)
        followers.setdefault(place.topic, []).extend(
            f"{place.partition}:{one}" for one in replicas if one not in had
        )
    await admin.alter_configs(
        {
            **{
                topic_resource(topic): [
                    ConfigChange(LEADERS, ",".join(leaders[topic])),
                    ConfigChange(FOLLOWERS, ",".join(followers[topic])),
                ]
                for topic in leaders
            },
            **{
                broker_resource(one): [ConfigChange(name, str(rate)) for name in RATES]
                for one in brokers
            },
        }
    )
    print(f"The inter-broker throttle limit was set to {rate} B/s")


async def _throttle_log_dirs(admin: Admin, log_dirs: LogDirs, rate: int) -> None:
    brokers = {replica.broker for replica in log_dirs}
    change = [ConfigChange(LOG_DIR_RATE, str(rate))]
    await admin.alter_configs({broker_resource(one): change for one in brokers})
    print(f"The replica-alter-dir throttle limit was set to {rate} B/s")


async def _clear_throttles(admin: Admin, wanted: Wanted) -> None:
    brokers = [one.id for one in (await admin.describe_cluster()).brokers]
    topics = sorted({place.topic for place in wanted})

    def gone(*names: str) -> list[ConfigChange]:
        return [ConfigChange(name, None, Operation.DELETE) for name in names]

    print(f"Clearing broker-level throttles on broker{_s(brokers)} {_nodes(brokers)}")
    await admin.alter_configs({broker_resource(one): gone(*RATES, LOG_DIR_RATE) for one in brokers})
    print(f"Clearing topic-level throttles on topic{_s(topics)} {','.join(topics)}")
    await admin.alter_configs({topic_resource(one): gone(LEADERS, FOLLOWERS) for one in topics})


def _s(several: Sequence[Any]) -> str:
    return "s" if len(several) > 1 else ""


def _topics_to_move(path: str) -> list[str]:
    with open(path, encoding="utf-8") as file:
        try:
            return [str(one["topic"]) for one in json.load(file)["topics"]]
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidInput(f"{path} names no topics: {error}") from None


def _read(given: argparse.Namespace) -> tuple[Wanted, LogDirs]:
    if given.reassignment_json_file is None:
        raise InvalidInput('Missing required argument "[reassignment-json-file]"')
    with open(given.reassignment_json_file, encoding="utf-8") as file:
        text = file.read()
    return wanted_from_json(text), log_dirs_from_json(text)


async def _replicas(admin: Admin, wanted: Wanted) -> dict[TopicPartition, tuple[int, ...]]:
    described = await admin.describe_topics(sorted({place.topic for place in wanted}))
    held = {
        TopicPartition(name, one.index): one.replicas
        for name, topic in described.items()
        for one in topic.partitions
    }
    if unknown := [place for place in wanted if place not in held]:
        raise InvalidInput(f"Replica assignment not found for {unknown[0]}")
    return {place: held[place] for place in wanted}


def _assignment(replicas: Mapping[TopicPartition, Iterable[int]]) -> str:
    partitions = [
        {
            "topic": place.topic,
            "partition": place.partition,
            "replicas": list(nodes),
            "log_dirs": ["any" for _ in nodes],
        }
        for place, nodes in sorted(replicas.items())
    ]
    return json.dumps({"version": 1, "partitions": partitions}, separators=(",", ":"))


def _nodes(nodes: Iterable[int]) -> str:
    return ",".join(map(str, nodes))
