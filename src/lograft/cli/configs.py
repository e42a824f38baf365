"""Output of `lograft configs`."""

from collections.abc import Collection

from lograft.cli.output import count, table
from lograft.client.admin import ConfigEntry, ConfigSource


def is_set(entry: ConfigEntry) -> bool:
    """Returns whether the value is set explicitly."""
    return entry.source is not ConfigSource.DEFAULT


def describe_lines(entries: Collection[ConfigEntry], total: int) -> list[str]:
    lines = []
    if entries:
        lines = table(
            ["SETTING", "VALUE", "SOURCE"],
            (
                (entry.name, _format_value(entry), entry.source.name.lower().replace("_", " "))
                for entry in entries
            ),
        )
    if len(entries) < total:
        hidden = count(total - len(entries), "setting")
        lines += ["", f"{hidden} with default values not shown; use --all to show them."]
    return lines


def _format_value(entry: ConfigEntry) -> str:
    if entry.is_sensitive:
        return "(hidden)"
    return "(none)" if entry.value is None else entry.value or '""'
