"""Settings that depend on the size of a cluster."""


def internal_topics(nodes: int) -> dict[str, str]:
    """Returns the replication settings of internal topics: up to three replicas."""
    replicas, in_sync = str(min(nodes, 3)), str(min(nodes, 2))
    return {
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
    }
