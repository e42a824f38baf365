"""`lograft cluster` in words."""

from collections.abc import Iterator, Mapping, Sequence

from lograft.cli.output import NOTHING, table
from lograft.client.admin import Admin, ClusterDescription, FeatureLevels, Features, LogDirectory
from lograft.client.errors import UnsupportedByBroker


async def registered_brokers(admin: Admin) -> ClusterDescription:
    """Includes fenced brokers if the cluster reports them: Apache Kafka does since 4.0."""
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
                str(one.id),
                str(one.address),
                one.rack or NOTHING,
                "offline" if one.is_fenced else "online",
            )
            for one in cluster.brokers
        ),
    )
    yield ""
    yield from table(
        ["FEATURE", "LEVEL", "POSSIBLE"],
        (
            (name, str(_level(features, name)), _range(levels))
            for name, levels in sorted(features.supported.items())
        ),
    )


def _level(features: Features, name: str) -> int:
    levels = features.finalized.get(name)
    return 0 if levels is None else levels.highest


def _range(levels: FeatureLevels) -> str:
    return f"{levels.lowest} to {levels.highest}"


def disk_lines(found: Mapping[int, Sequence[LogDirectory]]) -> list[str]:
    rows = [
        (
            str(broker),
            one.path,
            str(len(one.replicas)),
            size(sum(replica.bytes for replica in one.replicas.values())),
            size(one.usable_bytes),
            "" if one.error is None else str(one.error),
        )
        for broker, directories in sorted(found.items())
        for one in directories
    ]
    return table(["BROKER", "DIRECTORY", "REPLICAS", "HOLDS", "FREE", "PROBLEM"], rows)


def size(number: int) -> str:
    """In the unit that leaves one to three digits before the point."""
    if number < 0:
        return NOTHING
    value = float(number)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"
