"""Every setting has the effect in its row of the tables: code reads those with an effect, and no
others."""

import ast
import re
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from lograft.metadata.resource_configs import CLIENT_METRICS_CONFIGS, GROUP_CONFIGS
from lograft.model.settings.broker_table import BROKER_CONFIGS, DYNAMIC_BROKER_CONFIGS
from lograft.model.settings.keys import ConfigKey, PartlyUsed, Used
from lograft.model.settings.topic import TOPIC_CONFIGS, TOPIC_SYNONYMS
from tools.generate_settings import OUTPUT, page

ROOT: Final = Path(__file__).parents[2] / "src" / "lograft"
#: Rooms that are not part of a node: a setting that only they read has no effect on a node.
OTHER_ROOMS: Final = ("cli", "client", "console", "simulation", "spark", "testing")
#: Modules that define, check or show settings without applying them.
DEFINITIONS: Final = (
    "metadata/resource_configs.py",
    "model/settings/broker_docs.py",
    "model/settings/broker_table.py",
    "model/settings/broker.py",
    "model/settings/effects.py",
    "model/settings/resolution.py",
    "model/settings/dynamic.py",
    "model/settings/topic_docs.py",
    "model/settings/topic.py",
)
#: Expressions that have the fields of a BrokerConfig or TopicConfig as their attributes.
CONFIG_OBJECT: Final = re.compile(r"(config|settings|rules|static|defaults)(\(\))?$")
#: Settings whose field in TopicConfig has another name.
COMPUTED_FIELDS: Final = {
    "cleanup.policy": "cleanup_compact",
    "internal.segment.bytes": "segment_bytes",
    "message.timestamp.type": "message_timestamp_log_append",
}
#: Settings that are read under a computed name, with the place.
COMPUTED_NAMES: Final = {
    **{
        f"group.consumer.{bound}.{rest}": "resource_configs.py: limits of the groups' own settings"
        for bound in ("min", "max")
        for rest in ("assignment.interval.ms", "heartbeat.interval.ms", "session.timeout.ms")
    },
}
TABLES: Final = {
    "broker": BROKER_CONFIGS | DYNAMIC_BROKER_CONFIGS,
    "topic": TOPIC_CONFIGS,
    "group": GROUP_CONFIGS,
    "client metrics": CLIENT_METRICS_CONFIGS,
}


def find_reads(source: str) -> Iterator[str]:
    """The names of settings, and of fields for settings, that the source reads."""
    tree = ast.parse(source)
    keys = {id(key) for node in ast.walk(tree) if isinstance(node, ast.Dict) for key in node.keys}
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=owner, attr=field, ctx=ast.Load()):
                if CONFIG_OBJECT.search(ast.unparse(owner)):
                    yield field
            # The keys of a dict assign values to settings.
            case ast.Constant(value=str(name)) if id(node) not in keys:
                yield name


@cache
def find_production_reads() -> frozenset[str]:
    files = (
        file
        for file in ROOT.rglob("*.py")
        if (path := file.relative_to(ROOT).as_posix()) not in DEFINITIONS
        and not path.startswith(OTHER_ROOMS)
    )
    return frozenset(read for file in files for read in find_reads(file.read_text()))


def is_read(name: str, reads: Collection[str]) -> bool:
    if name in reads or name in COMPUTED_NAMES:
        return True
    # The settings of groups and of client metrics have no typed form.
    has_field = name in TABLES["broker"] or name in TOPIC_CONFIGS
    return has_field and COMPUTED_FIELDS.get(name, name.replace(".", "_")) in reads


def wrong_rows(keys: Mapping[str, ConfigKey], reads: Collection[str]) -> list[str]:
    """The settings whose documented effect differs from the code."""
    stands_in_for = {
        synonym: topic_name
        for topic_name, synonyms in TOPIC_SYNONYMS.items()
        for synonym, _ in synonyms
    }
    wrong = []
    for name, key in keys.items():
        found = is_read(name, reads) or is_read(stands_in_for.get(name, name), reads)
        if found and not isinstance(key.effect, Used | PartlyUsed):
            wrong.append(f"{name} is read: remove its effect from the table")
        if not found and isinstance(key.effect, Used | PartlyUsed):
            wrong.append(f"{name} is not read: give it an effect in the table")
    return wrong


@pytest.mark.parametrize("kind", TABLES)
def test_production_code_reads_the_used_settings_and_no_others(kind: str) -> None:
    assert wrong_rows(TABLES[kind], find_production_reads()) == []


def test_a_row_that_disagrees_with_the_code_is_found() -> None:
    keys = {name: BROKER_CONFIGS[name] for name in ("num.io.threads", "num.partitions")}
    assert wrong_rows(keys, {"num_partitions"}) == []
    assert wrong_rows(keys, {"num_partitions", "num_io_threads"}) == [
        "num.io.threads is read: remove its effect from the table"
    ]
    assert wrong_rows(keys, ()) == ["num.partitions is not read: give it an effect in the table"]


@pytest.mark.parametrize(
    ("source", "reads"),
    [
        ("self._logs.config.num_partitions", {"num_partitions"}),
        ("config().num_partitions", {"num_partitions"}),
        ("topic.num_partitions", set()),
        ("config.num_partitions = 3", set()),
        ("config.text('num.partitions', listener=name)", {"text", "num.partitions"}),
        ("defaults = {'num.partitions': count}", set()),
    ],
)
def test_what_counts_as_reading_a_setting(source: str, reads: set[str]) -> None:
    assert set(find_reads(source)) == reads


def test_names_that_the_code_puts_together_are_not_read_otherwise() -> None:
    """Otherwise the exception is obsolete."""
    assert find_production_reads().isdisjoint(COMPUTED_NAMES)


def test_the_page_of_settings_is_up_to_date() -> None:
    assert OUTPUT.read_text() == page(), "run python -m tools.generate_settings"
