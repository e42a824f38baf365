"""A Spark Connect program with its own server, which runs the pipeline lake.

connect_job.py BOOTSTRAP TOPIC FOLDER
"""

import sys

from pyspark.sql import SparkSession

from lograft.spark.lag import Lag
from lograft.spark.pipelines.running import RunObserver, run_settings
from lograft.spark.pipelines.settings import Lake, Settings, Source, Spark


def main(bootstrap: str, topic: str, folder: str) -> None:
    spark = (
        SparkSession.builder.remote("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.python.authenticate.socketTimeout", "120s")
        .getOrCreate()
    )
    source = Source(bootstrap=bootstrap, topics=(topic,))
    lake = Lake(folder=folder, compact_every=0)
    lags: list[Lag] = []
    observer = RunObserver(on_batch=lags.append)
    run_settings(
        "lake", Settings(source=source, spark=Spark(), lake=lake), spark=spark, observer=observer
    )
    assert [(lag.rows, lag.total) for lag in lags] == [(100, 0)], lags
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
