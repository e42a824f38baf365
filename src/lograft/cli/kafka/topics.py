"""kafka-topics: create, delete, describe, or change a topic."""

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


def run(arguments: Sequence[str]) -> int:
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
    given = parser.parse_args(list(arguments))
    action = parser.require_one(given, "create", "delete", "alter", "describe", "list")
    if action in ("create", "delete", "alter") and given.topic is None:
        parser.error('Missing required argument "[topic]"')
    works = {
        "create": _create,
        "delete": _delete,
        "alter": _alter,
        "describe": _describe,
        "list": _list,
    }
    try:
        run_admin(settings_of(parser, given), lambda admin: works[action](admin, given))
    except (ClientError, InvalidInput) as error:
        print(f"Error while executing topic command : {error}", file=sys.stderr)
        return 1
    return 0


async def _create(admin: Admin, given: argparse.Namespace) -> None:
    if "." in given.topic or "_" in given.topic:
        print(COLLISION)
    topic = NewTopic(
        given.topic,
        -1 if given.partitions is None else given.partitions,
        -1 if given.replication_factor is None else given.replication_factor,
        dict(one.partition("=")[::2] for one in given.config),
        _assignment(given.replica_assignment),
    )
    try:
        await admin.create_topics([topic])
    except TopicExists:
        if not given.if_not_exists:
            raise InvalidInput(f"Topic '{given.topic}' already exists.") from None
    else:
        print(f"Created topic {given.topic}.")


async def _delete(admin: Admin, given: argparse.Namespace) -> None:
    names = await _named(admin, given)
    if names:
        await admin.delete_topics(names)


async def _alter(admin: Admin, given: argparse.Namespace) -> None:
    names = await _named(admin, given)
    if given.partitions is None:
        raise InvalidInput("--alter changes the number of partitions: give --partitions")
    described = await admin.describe_topics(names)
    placed = _assignment(given.replica_assignment)
    assignments = {
        name: [placed[index] for index in range(len(described[name].partitions), len(placed))]
        for name in names
        if placed
    }
    await admin.create_partitions(
        dict.fromkeys(names, given.partitions), assignments=assignments or None
    )


async def _list(admin: Admin, given: argparse.Namespace) -> None:
    topics = await admin.list_topics(internal=not given.exclude_internal)
    wanted = None if given.topic is None else _pattern(given.topic)
    for one in topics:
        if wanted is None or wanted.fullmatch(one.name):
            print(one.name)


async def _describe(admin: Admin, given: argparse.Namespace) -> None:
    if given.topic_id is not None:
        found = await admin.describe_topics([uuid_from_text(given.topic_id)])
    else:
        found = await admin.describe_topics(await _named(admin, given))
    configs = await admin.describe_configs(topic_resource(name) for name in found)
    for name, topic in sorted(found.items()):
        entries = configs[topic_resource(name)]
        if given.topics_with_overrides:
            if _overrides(entries):
                print(_head(topic, entries))
            continue
        lines = list(_lines(topic, given, int(entries["min.insync.replicas"].value or 1)))
        if not _is_filtered(given):
            print(_head(topic, entries))
        for line in lines:
            print(line)


async def _named(admin: Admin, given: argparse.Namespace) -> list[str]:
    """--topic may be a pattern."""
    topics = [one.name for one in await admin.list_topics(internal=not given.exclude_internal)]
    if given.topic is None:
        return topics
    pattern = _pattern(given.topic)
    names = [name for name in topics if pattern.fullmatch(name)]
    if not names and not given.if_exists:
        raise InvalidInput(f"Topic '{given.topic}' does not exist as expected")
    return names


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text.replace(",", "|"))
    except re.error as error:
        raise InvalidInput(f"{text} is not a valid regex: {error}") from None


def _assignment(text: str | None) -> dict[int, list[int]]:
    if text is None:
        return {}
    return {
        index: [int(broker) for broker in one.split(":")]
        for index, one in enumerate(text.split(","))
    }


def _overrides(entries: Mapping[str, ConfigEntry]) -> list[str]:
    return [
        f"{one.name}={one.value}"
        for one in entries.values()
        if one.source is not ConfigSource.DEFAULT
    ]


def _head(topic: TopicDescription, entries: Mapping[str, ConfigEntry]) -> str:
    replicas = len(topic.partitions[0].replicas) if topic.partitions else 0
    return (
        f"Topic: {topic.name}\tTopicId: {uuid_to_text(topic.id)}"
        f"\tPartitionCount: {len(topic.partitions)}\tReplicationFactor: {replicas}"
        f"\tConfigs: {','.join(_overrides(entries))}"
    )


def _is_filtered(given: argparse.Namespace) -> bool:
    return bool(
        given.under_replicated_partitions
        or given.unavailable_partitions
        or given.under_min_isr_partitions
        or given.at_min_isr_partitions
    )


def _lines(topic: TopicDescription, given: argparse.Namespace, min_isr: int) -> Iterator[str]:
    for one in topic.partitions:
        if _is_filtered(given) and not (
            (given.under_replicated_partitions and len(one.isr) < len(one.replicas))
            or (given.unavailable_partitions and one.leader < 0)
            or (given.under_min_isr_partitions and len(one.isr) < min_isr)
            or (given.at_min_isr_partitions and len(one.isr) == min_isr)
        ):
            continue
        yield _line(topic.name, one)


def _line(name: str, one: PartitionDescription) -> str:
    leader = "none" if one.leader < 0 else str(one.leader)
    return (
        f"\tTopic: {name}\tPartition: {one.index}\tLeader: {leader}"
        f"\tReplicas: {_nodes(one.replicas)}\tIsr: {_nodes(one.isr)}"
        f"\tElr: {_nodes(one.eligible_leaders)}\tLastKnownElr: {_nodes(one.last_known_eligible)}"
    )


def _nodes(nodes: Collection[int]) -> str:
    return ",".join(map(str, nodes))
