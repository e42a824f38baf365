"""kafka-reassign-partitions: moves replicas to other brokers and log dirs."""

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
    TargetReplicas,
    make_plan,
    parse_log_dirs,
    parse_target,
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


def run(words: Sequence[str]) -> int:
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
    arguments = parser.parse_args(list(words))
    action = parser.require_one(arguments, "generate", "execute", "verify", "cancel", "list")
    works = {
        "generate": _generate,
        "execute": _execute,
        "verify": _verify,
        "cancel": _cancel,
        "list": _list,
    }
    try:
        run_admin(settings_of(parser, arguments), lambda admin: works[action](admin, arguments))
    except BrokenPipeError:
        raise  # The reader of the output has closed the pipe: `main` exits quietly.
    except (ClientError, InvalidInput, OSError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    return 0


async def _list(admin: Admin, _arguments: argparse.Namespace) -> None:
    ongoing = await admin.list_reassignments()
    if not ongoing:
        print("No partition reassignments found.")
        return
    print("Current partition reassignments:")
    for partition, reassignment in sorted(ongoing.items()):
        adding = f" adding: {_nodes(reassignment.adding)}." if reassignment.adding else ""
        removing = f" removing: {_nodes(reassignment.removing)}." if reassignment.removing else ""
        print(f"{partition}: replicas: {_nodes(reassignment.replicas)}.{adding}{removing}")


async def _generate(admin: Admin, arguments: argparse.Namespace) -> None:
    """Prints a proposal that moves as few replicas as possible; Kafka's reassigns all of them."""
    if arguments.topics_to_move_json_file is None or arguments.broker_list is None:
        raise InvalidInput("--generate requires --topics-to-move-json-file and --broker-list")
    topics = _read_topics_to_move(arguments.topics_to_move_json_file)
    brokers = [int(broker) for broker in arguments.broker_list.split(",")]
    load, moves = await make_plan(admin, brokers=brokers, topics=topics)
    now = {
        TopicPartition(holding.topic, holding.partition): holding.replicas
        for holding in load.holdings
    }
    then = now | {TopicPartition(move.topic, move.partition): move.after for move in moves}
    print("Current partition replica assignment")
    print(_format_assignment(now))
    print("\nProposed partition reassignment configuration")
    print(_format_assignment(then))


async def _execute(admin: Admin, arguments: argparse.Namespace) -> None:
    target, log_dirs = _read_plan(arguments)
    now = await _find_replicas(admin, target)
    ongoing = await admin.list_reassignments()
    if ongoing and not arguments.additional:
        raise InvalidInput(
            "Cannot execute because there is an existing partition assignment. Use --additional to"
            " override this and create a new partition assignment in addition to the existing one."
        )
    print("Current partition replica assignment\n")
    print(_format_assignment(now))
    print("\nSave this to use as the --reassignment-json-file option during rollback")
    log_dir_rate = arguments.replica_alter_log_dirs_throttle
    if arguments.throttle >= 0:
        await _throttle(admin, now, target, arguments.throttle)
    if log_dir_rate >= 0:
        await _throttle_log_dirs(admin, log_dirs, log_dir_rate)
    if arguments.throttle >= 0 or log_dir_rate >= 0:
        print("Warning: You must run --verify periodically, until the reassignment completes, to")
        print("ensure the throttle is removed.")
    await admin.reassign(target)
    names = ",".join(str(partition) for partition in sorted(target))
    plural = "s" if len(target) > 1 else ""
    print(f"Successfully started partition reassignment{plural} for {names}")
    await start_moves(admin, log_dirs, timeout_ms=arguments.timeout)


async def _verify(admin: Admin, arguments: argparse.Namespace) -> None:
    target, log_dirs = _read_plan(arguments)
    ongoing = await admin.list_reassignments()
    now = await _find_replicas(admin, target)
    print("Status of partition reassignment:")
    for partition, replicas in sorted(target.items()):
        if partition in ongoing:
            print(f"Reassignment of partition {partition} is still in progress.")
        elif tuple(now[partition]) == tuple(replicas):
            print(f"Reassignment of partition {partition} is completed.")
        else:
            print(
                f"There is no active reassignment of partition {partition}, but replica set is"
                f" {_nodes(now[partition])} rather than {_nodes(replicas)}."
            )
    are_moved = await report_moves(admin, log_dirs)
    if not ongoing and are_moved and not arguments.preserve_throttles:
        print()
        await _clear_throttles(admin, target)


async def _cancel(admin: Admin, arguments: argparse.Namespace) -> None:
    target, log_dirs = _read_plan(arguments)
    ongoing = await admin.list_reassignments()
    chosen = sorted(partition for partition in target if partition in ongoing)
    if chosen:
        await admin.reassign(dict.fromkeys(chosen))
        plural = "s" if len(chosen) > 1 else ""
        names = ",".join(map(str, chosen))
        print(f"Successfully cancelled partition reassignment{plural} for: {names}")
    else:
        print("None of the specified partition reassignments are active.")
    await cancel_moves(admin, log_dirs, timeout_ms=arguments.timeout)
    if not arguments.preserve_throttles:
        await _clear_throttles(admin, target)


async def _throttle(
    admin: Admin,
    now: Mapping[TopicPartition, Sequence[int]],
    target: TargetReplicas,
    rate: int,
) -> None:
    """Limits the rate at which leaders send, and followers fetch, the partitions that move."""
    brokers = {broker for replicas in (*now.values(), *target.values()) for broker in replicas}
    leaders: dict[str, list[str]] = {}
    followers: dict[str, list[str]] = {}
    for partition, replicas in target.items():
        existing = now[partition]
        leaders.setdefault(partition.topic, []).extend(
            f"{partition.partition}:{broker}" for broker in existing
        )
        followers.setdefault(partition.topic, []).extend(
            f"{partition.partition}:{broker}" for broker in replicas if broker not in existing
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
                broker_resource(broker): [ConfigChange(name, str(rate)) for name in RATES]
                for broker in brokers
            },
        }
    )
    print(f"The inter-broker throttle limit was set to {rate} B/s")


async def _throttle_log_dirs(admin: Admin, log_dirs: LogDirs, rate: int) -> None:
    brokers = {replica.broker for replica in log_dirs}
    change = [ConfigChange(LOG_DIR_RATE, str(rate))]
    await admin.alter_configs({broker_resource(broker): change for broker in brokers})
    print(f"The replica-alter-dir throttle limit was set to {rate} B/s")


async def _clear_throttles(admin: Admin, target: TargetReplicas) -> None:
    brokers = [broker.id for broker in (await admin.describe_cluster()).brokers]
    topics = sorted({partition.topic for partition in target})

    def delete(*names: str) -> list[ConfigChange]:
        return [ConfigChange(name, None, Operation.DELETE) for name in names]

    print(f"Clearing broker-level throttles on broker{_plural(brokers)} {_nodes(brokers)}")
    await admin.alter_configs(
        {broker_resource(broker): delete(*RATES, LOG_DIR_RATE) for broker in brokers}
    )
    print(f"Clearing topic-level throttles on topic{_plural(topics)} {','.join(topics)}")
    await admin.alter_configs(
        {topic_resource(topic): delete(LEADERS, FOLLOWERS) for topic in topics}
    )


def _plural(items: Sequence[Any]) -> str:
    return "s" if len(items) > 1 else ""


def _read_topics_to_move(path: str) -> list[str]:
    with open(path, encoding="utf-8") as file:
        try:
            return [str(entry["topic"]) for entry in json.load(file)["topics"]]
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidInput(f"{path} is not a valid list of topics: {error}") from None


def _read_plan(arguments: argparse.Namespace) -> tuple[TargetReplicas, LogDirs]:
    if arguments.reassignment_json_file is None:
        raise InvalidInput('Missing required argument "[reassignment-json-file]"')
    with open(arguments.reassignment_json_file, encoding="utf-8") as file:
        text = file.read()
    return parse_target(text), parse_log_dirs(text)


async def _find_replicas(
    admin: Admin, target: TargetReplicas
) -> dict[TopicPartition, tuple[int, ...]]:
    described = await admin.describe_topics(sorted({partition.topic for partition in target}))
    current = {
        TopicPartition(name, partition.index): partition.replicas
        for name, topic in described.items()
        for partition in topic.partitions
    }
    if unknown := [partition for partition in target if partition not in current]:
        raise InvalidInput(f"Replica assignment not found for {unknown[0]}")
    return {partition: current[partition] for partition in target}


def _format_assignment(replicas: Mapping[TopicPartition, Iterable[int]]) -> str:
    partitions = [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "replicas": list(nodes),
            "log_dirs": ["any" for _ in nodes],
        }
        for partition, nodes in sorted(replicas.items())
    ]
    return json.dumps({"version": 1, "partitions": partitions}, separators=(",", ":"))


def _nodes(nodes: Iterable[int]) -> str:
    return ",".join(map(str, nodes))
