"""Writes the reference pages that the documentation site generates from the source.

`docs/conf.py` calls `write_pages` before each build, so the pages are not in the repository.

protocol.md     the APIs of Apache Kafka 4.3.1 and the versions that Lograft serves
settings-*.md   every setting: type, default, update mode, effect and documentation
client*.md      the public names of `lograft.client`, for Sphinx's autodoc
"""

import inspect
import pkgutil
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path

from lograft import api, client
from lograft.api.types import Needs
from lograft.metadata.resource_configs import CLIENT_METRICS_CONFIGS, GROUP_CONFIGS
from lograft.model.settings.broker_docs import BROKER_DOCS
from lograft.model.settings.broker_table import KAFKA_CONFIGS, LOGRAFT_CONFIGS
from lograft.model.settings.keys import ConfigKey, NoEffect, PartlyUsed, Unsupported, Used
from lograft.model.settings.topic import TOPIC_CONFIGS
from lograft.model.settings.topic_docs import TOPIC_DOCS
from lograft.wire.apis import API_VERSIONS, ApiSpec


def write_pages(directory: Path) -> None:
    """Rewrites only the pages whose text has changed, so that Sphinx reads only these again."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        path = directory / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def pages() -> dict[str, str]:
    return {
        "protocol.md": _join(_protocol_lines()),
        "settings-broker.md": _settings_page(
            "Broker settings", (*KAFKA_CONFIGS, *LOGRAFT_CONFIGS), BROKER_DOCS, modes=True
        ),
        "settings-topic.md": _settings_page(
            "Topic settings", TOPIC_CONFIGS.values(), TOPIC_DOCS, modes=False
        ),
        "settings-group.md": _settings_page(
            "Group settings", GROUP_CONFIGS.values(), {}, modes=False
        ),
        "settings-client-metrics.md": _settings_page(
            "Client metrics settings", CLIENT_METRICS_CONFIGS.values(), {}, modes=False
        ),
        **_client_pages(),
    }


def _join(lines: Iterable[str]) -> str:
    return "\n".join(lines) + "\n"


def _protocol_lines() -> Iterator[str]:
    yield "# Protocol coverage"
    yield ""
    yield "The APIs of Apache Kafka 4.3.1 and the versions that Lograft serves. A dash means that"
    yield "Lograft does not serve the API yet and does not list it in its ApiVersions response."
    yield ""
    yield "| key | API | versions in Kafka | versions in Lograft | listeners | permissions |"
    yield "|---|---|---|---|---|---|"
    served = {module.name for module in pkgutil.iter_modules(api.__path__)}
    for spec in API_VERSIONS.values():
        yield _protocol_row(spec, is_served=spec.module in served)


def _protocol_row(spec: ApiSpec, *, is_served: bool) -> str:
    in_kafka = _version_range(spec.min_version, spec.max_version)
    listeners = ", ".join(sorted(spec.listeners))
    if not is_served:
        return f"| {spec.key} | {spec.name} | {in_kafka} | – | {listeners} | |"
    declared = import_module(f"{api.__name__}.{spec.module}").API
    in_lograft = _version_range(
        max(spec.min_version, declared.versions.start),
        min(spec.max_version, declared.versions.stop - 1),
    )
    permissions = _permissions_text(declared.needs)
    return f"| {spec.key} | {spec.name} | {in_kafka} | {in_lograft} | {listeners} | {permissions} |"


def _permissions_text(needs: Needs) -> str:
    return ", ".join(
        sorted(
            f"{_title(permission.operation.name)} on {_title(permission.resource_type.name)}"
            for permission in needs.permissions
        )
    )


def _title(name: str) -> str:
    """`cluster_action` as Kafka's documentation writes it: ClusterAction."""
    return "".join(part.title() for part in name.split("_"))


def _version_range(oldest: int, newest: int) -> str:
    return str(oldest) if oldest == newest else f"{oldest}-{newest}"


def _settings_page(
    title: str, keys: Iterable[ConfigKey], documentation: Mapping[str, str], *, modes: bool
) -> str:
    lines = [f"# {title}", ""]
    for key in sorted(keys, key=lambda key: key.name):
        if not key.internal:
            lines += _setting_lines(key, documentation.get(key.name, ""), modes=modes)
    return _join(lines)


def _setting_lines(key: ConfigKey, documentation: str, *, modes: bool) -> Iterator[str]:
    yield f"## `{key.name}`"
    yield ""
    if documentation:
        yield _escape(documentation)
        yield ""
    facts = [f"type {key.type.name.lower()}", f"default {_default_text(key.default)}"]
    if modes:
        facts.append(f"update mode {key.mode.value}")
    yield f"- {', '.join(facts)}"
    match key.effect:
        case NoEffect(reason=reason):
            yield f"- no effect in Lograft: {_escape(reason)}"
        case Unsupported(reason=reason):
            yield f"- not supported by Lograft: {_escape(reason)}"
        case PartlyUsed(items, reason):
            names = ", ".join(f"`{item}`" for item in items)
            yield f"- no effect in Lograft of {names}: {_escape(reason)}"
        case Used():
            pass
    yield ""


def _default_text(default: str | None) -> str:
    if default is None:
        return "none"
    return f"`{default}`" if default else "empty"


def _escape(text: str) -> str:
    """Markdown shows characters of HTML and emphasis as they are."""
    for character in "\\<>*_[]$":
        text = text.replace(character, f"\\{character}")
    return text


def _client_pages() -> dict[str, str]:
    names = [name for name in client.__all__ if inspect.getmodule(getattr(client, name))]
    errors = [name for name in names if _is_error(getattr(client, name))]
    clients = ["Producer", "Consumer", "RangeReader", "Admin"]
    others = [name for name in names if name not in errors and name not in clients]
    return {
        "client.md": _client_page("The clients", clients),
        "client-types.md": _client_page("Types and functions of the clients", others),
        "client-errors.md": _client_page("Errors of the clients", errors),
    }


def _is_error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)


def _client_page(title: str, names: Iterable[str]) -> str:
    lines = [f"# {title}", "", "Import these names from `lograft.client`.", "", "```{eval-rst}"]
    for name in names:
        value = getattr(client, name)
        if isinstance(value, type):
            directive = "autoexception" if _is_error(value) else "autoclass"
            lines += [f".. {directive}:: lograft.client.{name}", "   :members:", ""]
        elif inspect.isfunction(value):
            lines += [f".. autofunction:: lograft.client.{name}", ""]
    return _join([*lines, "```"])
