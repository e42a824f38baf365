"""Output of `lograft cluster`."""

from collections.abc import Iterator, Mapping, Sequence

from lograft.cli.output import NOTHING, table
from lograft.client.admin import Admin, ClusterDescription, FeatureLevels, Features, LogDirectory
from lograft.client.errors import UnsupportedByBroker


async def registered_brokers(admin: Admin) -> ClusterDescription:
    """Describes the cluster, with fenced brokers if the cluster reports them (Kafka since 4.0)."""
    try:
        return await admin.describe_cluster(fenced=True)
    except UnsupportedByBroker:
        return await admin.describe_cluster()


def describe_lines(cluster: ClusterDescription, features: Features) -> Iterator[str]:
    yield f"cluster {cluster.cluster_id}"
    yield ""
    yield from table(
        ["BROKER", "ADDRESS", "RACK", "STATE"],
        (
            (
                str(broker.id),
                str(broker.address),
                broker.rack or NOTHING,
                "offline" if broker.is_fenced else "online",
            )
            for broker in cluster.brokers
        ),
    )
    yield ""
    yield from table(
        ["FEATURE", "LEVEL", "SUPPORTED"],
        (
            (name, str(_level_of(features, name)), _format_range(levels))
            for name, levels in sorted(features.supported.items())
        ),
    )


def _level_of(features: Features, name: str) -> int:
    levels = features.finalized.get(name)
    return 0 if levels is None else levels.highest


def _format_range(levels: FeatureLevels) -> str:
    return f"{levels.lowest} to {levels.highest}"


def disk_lines(found: Mapping[int, Sequence[LogDirectory]]) -> list[str]:
    rows = [
        (
            str(broker),
            directory.path,
            str(len(directory.replicas)),
            format_size(sum(replica.bytes for replica in directory.replicas.values())),
            format_size(directory.usable_bytes),
            "" if directory.error is None else str(directory.error),
        )
        for broker, directories in sorted(found.items())
        for directory in directories
    ]
    return table(["BROKER", "DIRECTORY", "REPLICAS", "USED", "FREE", "ERROR"], rows)


def format_size(number: int) -> str:
    """Formats a number of bytes in the unit that leaves one to three digits before the decimal
    point."""
    if number < 0:
        return NOTHING
    value = float(number)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"
