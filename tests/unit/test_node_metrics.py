"""A node yields every metric that is declared."""

from lograft.model.metrics import Families, gather_all
from lograft.testing import VirtualCluster
from tools.generate_metrics import declared_metrics


def collect(cluster: VirtualCluster) -> Families:
    return gather_all(cluster.node(1).collect_samples())


def test_a_node_yields_each_metric_that_is_declared() -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        await cluster.test_client().create_topic("t", partitions=2)
        collected = collect(cluster).by_metric
        declared = [metric for metrics in declared_metrics().values() for metric in metrics]
        assert declared
        assert {metric.name for metric in declared} == {metric.name for metric in collected}

    VirtualCluster(nodes=1).play(scenario)
