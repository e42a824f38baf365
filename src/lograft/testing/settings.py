"""Settings that follow from the size of a cluster."""


def internal_topics(nodes: int) -> dict[str, str]:
    """Replicas of the topics that brokers make for themselves: three, or as many as can be."""
    copies, in_sync = str(min(nodes, 3)), str(min(nodes, 2))
    return {
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": in_sync,
    }
