"""Writes docs/settings.md: which settings have no effect, which are not supported, which are ours.

    python -m tools.generate_settings

The facts are in the tables of settings. A test compares the page with what this would write.
"""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from lograft.metadata.resource_configs import CLIENT_METRICS_CONFIGS, GROUP_CONFIGS
from lograft.model.settings.broker_docs import BROKER_DOCS
from lograft.model.settings.broker_table import KAFKA_CONFIGS, LOGRAFT_CONFIGS
from lograft.model.settings.keys import ConfigKey, NoEffect, Unsupported
from lograft.model.settings.topic import TOPIC_CONFIGS
from lograft.model.settings.topic_docs import TOPIC_DOCS

OUTPUT: Final = Path(__file__).parents[1] / "docs" / "settings.md"
#: Topic settings that Kafka does not have.
OWN_TOPIC_SETTINGS: Final = (
    "auto.create.partitions.max",
    "replication.mode",
    "replication.mode.partitions",
    "retention.hold.groups",
    "retention.hold.max.bytes",
    "retention.hold.max.ms",
    "subscription.group",
    "subscription.mode",
)
KAFKA_TABLES: Final = (
    ("Broker", KAFKA_CONFIGS),
    ("Topic", tuple(TOPIC_CONFIGS.values())),
    ("Group", tuple(GROUP_CONFIGS.values())),
    ("Client metrics", tuple(CLIENT_METRICS_CONFIGS.values())),
)

INTRODUCTION: Final = """\
# Settings

Lograft reads Kafka's `server.properties` and knows every broker, topic, group and client metrics
setting of Apache Kafka 4.3.1: its type, default and limits, and whether it can be changed while the
broker runs. They work as in Kafka, except for those on this page.

- A setting **without effect** is accepted. A node that starts with a value other than the default
  names the setting in a warning. A change while the cluster runs is reported by the broker that
  applies it, or by the active controller for topics and groups. The documentation of the setting in
  DescribeConfigs gives the reason.
- A setting that is **not supported** is rejected: the node does not start, or the change fails.
  Such a setting promises security or another place for data, so ignoring it would do harm. Its
  default, an empty value and `false` are accepted.

`python -m tools.generate_settings` writes this page from the tables of settings. A test compares
these tables with the code that reads settings.
"""

VARIABLES: Final = """\
## Changes while the cluster runs

A change of dynamic settings is checked before it is stored. A broker checks changes of its own
settings, and those of all brokers that are sent to it, against its whole configuration, and rejects
what Apache Kafka's broker rejects. The active controller (`--bootstrap-controller`) does not know
the files of the brokers: it checks its own settings completely, and rejects for other brokers what
is invalid whatever their files contain, such as a value that is invalid by itself, a cleaner buffer
that is too small, or a protocol map that cannot be parsed. `max.connections.per.ip=0` needs
`max.connections.per.ip.overrides` in the same request, among the stored settings or in the
controller's file. Kafka's controllers accept any value.

A stored value that a broker cannot apply, because it comes from a Kafka folder or does not fit the
broker's own file, is skipped: all others stay in force. The broker logs it once, and
`lograft doctor` shows it with the reason. Of values that contradict each other, as few as possible
are skipped, those of the broker before those of all brokers.

`listeners` opens and closes listeners at run time. As in Kafka, what a broker advertises, the
address of a listener that exists and the listeners of controllers change with a restart only. While
a listener cannot open (its port is in use, its host has no address), or a host in
`max.connections.per.ip.overrides` has no address, `lograft doctor` shows it, and the broker tries
again, at least every 30 seconds.

## Variables in the configuration file

`config.providers` works as in Kafka, with Kafka's file, directory and environment providers
(`FileConfigProvider`, `DirectoryConfigProvider`, `EnvVarConfigProvider` of
`org.apache.kafka.common.config.provider`) and their parameters `allowed.paths` and
`allowlist.pattern`:

```properties
config.providers=file
config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider
config.providers.file.param.allowed.paths=/etc/lograft/secrets
ssl.key.password=${file:/etc/lograft/secrets/node.properties:key.password}
```

- Values are read when the node starts.
- A node with a variable that its provider cannot resolve does not start; the error names the
  setting and the variable. Kafka would use the variable as plain text.
- Dynamic settings of brokers, topics, groups and client metrics have no variables: a value that
  contains `${…}` is rejected.
"""

DEFAULTS: Final = """\
## Other defaults than in Kafka

| setting | when the file does not set it |
|---|---|
| `group.consumer.assignors` | also has `consistent` |
| `initial.broker.registration.timeout.ms` | a broker waits for the controller without a limit |
| `socket.listen.backlog.size` | 1024 connections may wait to be accepted |
| `socket.receive.buffer.bytes` | the operating system sizes the buffer |
"""


def page() -> str:
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield INTRODUCTION
    yield VARIABLES
    yield "## Not supported"
    yield ""
    yield "| setting | of | reason |"
    yield "|---|---|---|"
    for owner, keys in KAFKA_TABLES:
        for key in keys:
            if isinstance(key.effect, Unsupported):
                yield f"| `{key.name}` | {owner.lower()} | {key.effect.reason} |"
    yield ""
    yield "## Without effect"
    for owner, keys in KAFKA_TABLES:
        yield from _without_effect(owner, keys)
    yield ""
    yield DEFAULTS
    yield "## Settings that Kafka does not have"
    yield ""
    yield "| setting | of | default | meaning |"
    yield "|---|---|---|---|"
    for key in LOGRAFT_CONFIGS:
        yield _own_row(key, "broker", BROKER_DOCS[key.name])
    for name in OWN_TOPIC_SETTINGS:
        yield _own_row(TOPIC_CONFIGS[name], "topic", TOPIC_DOCS[name])


def _without_effect(owner: str, keys: Iterable[ConfigKey]) -> Iterator[str]:
    by_reason: dict[str, list[str]] = {}
    for key in keys:
        if isinstance(key.effect, NoEffect):
            by_reason.setdefault(key.effect.reason, []).append(f"`{key.name}`")
    if by_reason:
        yield ""
        yield f"### {owner} settings"
        yield ""
    for reason, names in sorted(by_reason.items()):
        yield f"- {reason[0].upper()}{reason[1:]}: {', '.join(names)}"


def _own_row(key: ConfigKey, owner: str, meaning: str) -> str:
    default = "none" if key.default is None else f"`{key.default}`" if key.default else "empty"
    return f"| `{key.name}` | {owner} | {default} | {meaning} |"


if __name__ == "__main__":
    OUTPUT.write_text(page())
    sys.stdout.write(f"wrote {OUTPUT}\n")
