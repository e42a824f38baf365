"""`lograft configs` in words."""

from collections.abc import Collection

from lograft.cli.output import table
from lograft.client.admin import ConfigEntry, ConfigSource


def is_own(entry: ConfigEntry) -> bool:
    """Whether somebody has set it."""
    return entry.source is not ConfigSource.DEFAULT


def describe_lines(entries: Collection[ConfigEntry], total: int) -> list[str]:
    lines = []
    if entries:
        lines = table(
            ["SETTING", "VALUE", "FROM"],
            ((one.name, _value(one), one.source.name.lower().replace("_", " ")) for one in entries),
        )
    if len(entries) < total:
        lines += ["", f"{total - len(entries)} more have their default; --all shows them."]
    return lines


def _value(entry: ConfigEntry) -> str:
    if entry.is_sensitive:
        return "(hidden)"
    return "(none)" if entry.value is None else entry.value or '""'
