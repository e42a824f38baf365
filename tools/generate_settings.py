"""Writes docs/settings.md: settings without effect, unsupported settings, Lograft's own.

    python -m tools.generate_settings

The tables of settings are the source. A test checks that the page is up to date.
"""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from lograft.metadata.resource_configs import CLIENT_METRICS_CONFIGS, GROUP_CONFIGS
from lograft.model.settings.broker_docs import BROKER_DOCS
from lograft.model.settings.broker_table import KAFKA_CONFIGS, LOGRAFT_CONFIGS
from lograft.model.settings.keys import ConfigKey, NoEffect, PartlyUsed, Unsupported
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

- A setting **without effect** is accepted. If its value is not the default, the node logs a warning
  when it starts, also for settings of topics and groups that the metadata contains. When the value
  is changed dynamically, the broker logs the warning, or the active controller for topic and group
  settings. The documentation of the setting in DescribeConfigs gives the reason.
- A setting that is **not supported** is rejected: the node does not start, or the change fails.
  Such a setting controls security or where data is stored, so it would be dangerous to ignore it.
  Its default, an empty value and `false` are accepted.
- The prefix `listener.name.<listener>.`, with the listener's name in lower case, is for `ssl.*`,
  `sasl.*`, `connections.max.reauth.ms`, `max.connections` and `max.connection.creation.rate`.
  `sasl.jaas.config` also needs the name of the mechanism after the listener's, in lower case.
  Another setting with a prefix, or a prefix with capital letters, has no effect and is reported as
  such.

`python -m tools.generate_settings` generates this page from the tables of settings. A test compares
the tables with the code that reads the settings.
"""

VARIABLES: Final = """\
## Dynamic settings

Changes of dynamic settings are validated before they are stored. A broker validates changes of its
own settings, and of the cluster-wide defaults that are sent to it, against its whole configuration,
and rejects what an Apache Kafka broker rejects. The active controller (`--bootstrap-controller`)
does not know the configuration files of the brokers. It validates its own settings completely; for
other brokers it rejects only what is invalid with every configuration file, such as a value of the
wrong type, a cleaner buffer that is too small, or a protocol map that cannot be parsed.
`max.connections.per.ip=0` requires `max.connections.per.ip.overrides` in the same request, in the
stored settings or in the controller's configuration file. Kafka's controllers accept any value.

A broker skips a stored value that it cannot apply, because the value comes from a Kafka data folder
or conflicts with the broker's own configuration file. All other values are applied. The broker logs
the skipped value once, and `lograft doctor` shows it with the reason. If values conflict with each
other, the broker skips as few as possible, per-broker values before cluster-wide defaults. The same
applies to nodes that are only controllers; `lograft doctor` asks those that it can reach. Invalid
values of topic settings, which other versions of Kafka may have stored, are skipped and reported in
the same way; if the retention of a topic is invalid, its records are not deleted.

Changing `listeners` opens and closes listeners at run time. As in Kafka, the advertised listeners,
the address of an existing listener and the controller listeners change only with a restart. If a
listener cannot open (its port is in use, its host cannot be resolved), or a host in
`max.connections.per.ip.overrides` cannot be resolved, `lograft doctor` reports it, and the broker
retries at least every 30 seconds.

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

- Variables are resolved when the node starts.
- If a provider cannot resolve a variable, the node does not start; the error names the setting and
  the variable. Kafka would use the variable as plain text.
- Dynamic settings of brokers, topics, groups and client metrics cannot contain variables: a value
  that contains `${…}` is rejected.
"""

DEFAULTS: Final = """\
## Defaults that differ from Kafka's

| setting | if not set |
|---|---|
| `group.consumer.assignors` | also includes `consistent` |
| `initial.broker.registration.timeout.ms` | a broker waits indefinitely |
| `socket.listen.backlog.size` | 1024 connections |
| `socket.receive.buffer.bytes` | chosen by the operating system |
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
        elif isinstance(key.effect, PartlyUsed):
            items = " and ".join(f"`{item}`" for item in key.effect.items)
            by_reason.setdefault(key.effect.reason, []).append(f"{items} in `{key.name}`")
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
