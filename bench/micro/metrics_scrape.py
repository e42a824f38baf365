"""The CPU time of a scrape by the number of partitions, and of its longest slice.

    python -m bench.micro.metrics_scrape --partitions 10000

The node is one of the simulator, without load; time is the CPU time of this thread, so that other
processes do not matter. `--series` gives every partition series of its own
(lograft.metrics.partitions.max).
"""

import argparse
import asyncio
import gc
import itertools
import statistics
from time import thread_time
from typing import Final, NamedTuple

from lograft.broker.partitions.partition_table import PARTITIONS
from lograft.http.exposition import write_families
from lograft.model.metrics import Families, value_of
from lograft.node import Node
from lograft.testing import VirtualCluster

ROUNDS: Final = 10


class Scrape(NamedTuple):
    cpu_ms: float
    longest_slice_ms: float
    size_bytes: int


def scrape(node: Node) -> Scrape:
    size = 0
    times = [thread_time()]
    families = Families()
    for _ in families.gather(node.collect_samples()):
        times.append(thread_time())
    for text in write_families(families, openmetrics=True):
        size += len(text.encode())
        times.append(thread_time())
    slices = [end - start for start, end in itertools.pairwise(times)]
    return Scrape(1000 * (times[-1] - times[0]), 1000 * max(slices), size)


async def measure(cluster: VirtualCluster, *, topics: int, partitions: int) -> None:
    client, node = cluster.test_client(), cluster.node(1)
    for number in range(topics):
        await client.create_topic(f"t{number}", partitions=partitions // topics)
    while value_of(node, PARTITIONS, "leader") < partitions // topics * topics:
        await asyncio.sleep(0.1)
    gc.collect()
    scrapes = [scrape(node) for _ in range(ROUNDS)]
    print(
        f"{topics} topics, {partitions} partitions:"
        f" {statistics.median(each.cpu_ms for each in scrapes):.0f} ms CPU,"
        f" longest slice {statistics.median(each.longest_slice_ms for each in scrapes):.1f} ms,"
        f" {scrapes[-1].size_bytes} bytes"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--series", action="store_true")
    arguments = parser.parse_args()
    properties = {}
    if arguments.series:
        properties["lograft.metrics.partitions.max"] = str(arguments.partitions)
        properties["lograft.metrics.topics.max"] = str(min(arguments.topics, 10_000))

    async def play(cluster: VirtualCluster) -> None:
        await measure(cluster, topics=arguments.topics, partitions=arguments.partitions)

    VirtualCluster(nodes=1, properties=properties).play(play)


if __name__ == "__main__":
    main()
