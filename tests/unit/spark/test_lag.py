"""The lag of a query, from its own report of a micro-batch."""

from lograft.model.types import TopicPartition
from lograft.spark.lag import lag_of


def test_lag_by_partition() -> None:
    lag = lag_of(
        {
            "id": "1",
            "name": "orders",
            "batchId": 4,
            "numInputRows": 10,
            "processedRowsPerSecond": 2.5,
            "sources": [
                {"latestOffset": {"t": {"0": 9, "1": 5}}, "endOffset": '{"t":{"0":7,"1":5}}'},
                {"latestOffset": None, "endOffset": 12},
            ],
        }
    )
    assert lag.behind == {TopicPartition("t", 0): 2, TopicPartition("t", 1): 0}
    assert (lag.query, lag.total, lag.rows) == ("orders", 2, 10)
