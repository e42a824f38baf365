"""kafka-topics: creates, deletes, describes and changes topics."""

import argparse
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from lograft.cli.client_runner import run_admin
from lograft.cli.kafka.tools import Parser, settings_of
from lograft.client.admin import (
    Admin,
    ConfigEntry,
    ConfigSource,
    NewTopic,
    PartitionDescription,
    TopicDescription,
    topic_resource,
)
from lograft.client.errors import ClientError, TopicExists
from lograft.model.errors import InvalidInput
from lograft.model.uuids import uuid_from_text, uuid_to_text

COLLISION: Final = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_')"
    " could collide. To avoid issues it is best to use either, but not both."
)


def run(words: Sequence[str]) -> int:
    parser = Parser("kafka-topics", "Create, delete, describe, or change a topic.")
    parser.add_connection()
    for flag in ("create", "delete", "alter", "describe", "list"):
        parser.add_argument(f"--{flag}", action="store_true")
    parser.add_argument("--topic")
    parser.add_argument("--topic-id")
    parser.add_argument("--partitions", type=int)
    parser.add_argument("--replication-factor", type=int)
    parser.add_argument("--replica-assignment", metavar="1:2,2:3")
    parser.add_argument("--config", action="append", default=[], metavar="NAME=VALUE")
    for flag in (
        "if-exists",
        "if-not-exists",
        "exclude-internal",
        "under-replicated-partitions",
        "unavailable-partitions",
        "under-min-isr-partitions",
        "at-min-isr-partitions",
        "topics-with-overrides",
    ):
        parser.add_argument(f"--{flag}", action="store_true")
    arguments = parser.parse_args(list(words))
    action = parser.require_one(arguments, "create", "delete", "alter", "describe", "list")
    if action in ("create", "delete", "alter") and arguments.topic is None:
        parser.error('Missing required argument "[topic]"')
    works = {
        "create": _create,
        "delete": _delete,
        "alter": _alter,
        "describe": _describe,
        "list": _list,
    }
    try:
        run_admin(settings_of(parser, arguments), lambda admin: works[action](admin, arguments))
    except (ClientError, InvalidInput) as error:
        print(f"Error while executing topic command : {error}", file=sys.stderr)
        return 1
    return 0


async def _create(admin: Admin, arguments: argparse.Namespace) -> None:
    if "." in arguments.topic or "_" in arguments.topic:
        print(COLLISION)
    topic = NewTopic(
        arguments.topic,
        -1 if arguments.partitions is None else arguments.partitions,
        -1 if arguments.replication_factor is None else arguments.replication_factor,
        dict(text.partition("=")[::2] for text in arguments.config),
        _parse_assignment(arguments.replica_assignment),
    )
    try:
        await admin.create_topics([topic])
    except TopicExists:
        if not arguments.if_not_exists:
            raise InvalidInput(f"Topic '{arguments.topic}' already exists.") from None
    else:
        print(f"Created topic {arguments.topic}.")


async def _delete(admin: Admin, arguments: argparse.Namespace) -> None:
    names = await _find_topics(admin, arguments)
    if names:
        await admin.delete_topics(names)


async def _alter(admin: Admin, arguments: argparse.Namespace) -> None:
    names = await _find_topics(admin, arguments)
    if arguments.partitions is None:
        raise InvalidInput("--alter changes the number of partitions: specify --partitions")
    described = await admin.describe_topics(names)
    replicas = _parse_assignment(arguments.replica_assignment)
    assignments = {
        name: [replicas[index] for index in range(len(described[name].partitions), len(replicas))]
        for name in names
        if replicas
    }
    await admin.create_partitions(
        dict.fromkeys(names, arguments.partitions), assignments=assignments or None
    )


async def _list(admin: Admin, arguments: argparse.Namespace) -> None:
    topics = await admin.list_topics(internal=not arguments.exclude_internal)
    pattern = None if arguments.topic is None else _parse_pattern(arguments.topic)
    for topic in topics:
        if pattern is None or pattern.fullmatch(topic.name):
            print(topic.name)


async def _describe(admin: Admin, arguments: argparse.Namespace) -> None:
    if arguments.topic_id is not None:
        found = await admin.describe_topics([uuid_from_text(arguments.topic_id)])
    else:
        found = await admin.describe_topics(await _find_topics(admin, arguments))
    configs = await admin.describe_configs(topic_resource(name) for name in found)
    for name, topic in sorted(found.items()):
        entries = configs[topic_resource(name)]
        if arguments.topics_with_overrides:
            if _overrides(entries):
                print(_format_head(topic, entries))
            continue
        lines = list(
            _partition_lines(topic, arguments, int(entries["min.insync.replicas"].value or 1))
        )
        if not _is_filtered(arguments):
            print(_format_head(topic, entries))
        for line in lines:
            print(line)


async def _find_topics(admin: Admin, arguments: argparse.Namespace) -> list[str]:
    """Returns the topics that --topic matches; it may be a regular expression."""
    topics = [
        topic.name for topic in await admin.list_topics(internal=not arguments.exclude_internal)
    ]
    if arguments.topic is None:
        return topics
    pattern = _parse_pattern(arguments.topic)
    names = [name for name in topics if pattern.fullmatch(name)]
    if not names and not arguments.if_exists:
        raise InvalidInput(f"Topic '{arguments.topic}' does not exist as expected")
    return names


def _parse_pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text.replace(",", "|"))
    except re.error as error:
        raise InvalidInput(f"{text} is not a valid regex: {error}") from None


def _parse_assignment(text: str | None) -> dict[int, list[int]]:
    if text is None:
        return {}
    return {
        index: [int(broker) for broker in part.split(":")]
        for index, part in enumerate(text.split(","))
    }


def _overrides(entries: Mapping[str, ConfigEntry]) -> list[str]:
    return [
        f"{entry.name}={entry.value}"
        for entry in entries.values()
        if entry.source is not ConfigSource.DEFAULT
    ]


def _format_head(topic: TopicDescription, entries: Mapping[str, ConfigEntry]) -> str:
    replicas = len(topic.partitions[0].replicas) if topic.partitions else 0
    return (
        f"Topic: {topic.name}\tTopicId: {uuid_to_text(topic.id)}"
        f"\tPartitionCount: {len(topic.partitions)}\tReplicationFactor: {replicas}"
        f"\tConfigs: {','.join(_overrides(entries))}"
    )


def _is_filtered(arguments: argparse.Namespace) -> bool:
    return bool(
        arguments.under_replicated_partitions
        or arguments.unavailable_partitions
        or arguments.under_min_isr_partitions
        or arguments.at_min_isr_partitions
    )


def _partition_lines(
    topic: TopicDescription, arguments: argparse.Namespace, min_isr: int
) -> Iterator[str]:
    for partition in topic.partitions:
        if _is_filtered(arguments) and not (
            (arguments.under_replicated_partitions and len(partition.isr) < len(partition.replicas))
            or (arguments.unavailable_partitions and partition.leader < 0)
            or (arguments.under_min_isr_partitions and len(partition.isr) < min_isr)
            or (arguments.at_min_isr_partitions and len(partition.isr) == min_isr)
        ):
            continue
        yield _format_line(topic.name, partition)


def _format_line(name: str, partition: PartitionDescription) -> str:
    leader = "none" if partition.leader < 0 else str(partition.leader)
    return (
        f"\tTopic: {name}\tPartition: {partition.index}\tLeader: {leader}"
        f"\tReplicas: {_nodes(partition.replicas)}\tIsr: {_nodes(partition.isr)}"
        f"\tElr: {_nodes(partition.eligible_leaders)}"
        f"\tLastKnownElr: {_nodes(partition.last_known_eligible)}"
    )


def _nodes(nodes: Collection[int]) -> str:
    return ",".join(map(str, nodes))
