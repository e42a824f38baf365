"""Tests of the lag derived from a query's progress."""

from lograft.model.types import TopicPartition
from lograft.spark.lag import lag_of


def test_lag_is_reported_by_partition() -> None:
    lag = lag_of(
        {
            "id": "1",
            "name": "orders",
            "batchId": 4,
            # With Spark Connect only the sources report these.
            "numInputRows": None,
            "processedRowsPerSecond": None,
            "sources": [
                {
                    "numInputRows": 7,
                    "processedRowsPerSecond": 2.5,
                    "latestOffset": {"t": {"0": 9, "1": 5}},
                    "endOffset": '{"t":{"0":7,"1":5}}',
                },
                {"numInputRows": 3, "latestOffset": None, "endOffset": 12},
            ],
        }
    )
    assert lag.behind == {TopicPartition("t", 0): 2, TopicPartition("t", 1): 0}
    assert (lag.query, lag.total, lag.rows) == ("orders", 2, 10)
    assert lag.rows_per_second == 2.5


def test_lag_of_a_repeated_batch_is_unknown() -> None:
    source = {"numInputRows": 1, "latestOffset": "null", "endOffset": '{"t":{"0":7}}'}
    lag = lag_of({"id": "1", "batchId": 4, "sources": [source]})
    assert (lag.rows, lag.total) == (1, None)
