"""A Spark program that copies a topic exactly once and kills itself at a given point:

    copy_job.py BOOTSTRAP ORIGIN TARGET FOLDER none|task|driver-before-commit|…

A file in FOLDER tells Spark's Python processes where to die; the first process that reaches this
point renames the file, so that the next attempt survives.
"""

import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession


def main(bootstrap: str, origin: str, target: str, folder: str, kill_point: str) -> None:
    kill_file = Path(folder) / "kill-point"
    if kill_point != "none":
        kill_file.write_text(f"{kill_point} {os.getpid()}")
    else:
        kill_file.unlink(missing_ok=True)
    os.environ["COPY_JOB_KILL_FILE"] = str(kill_file)
    spark = (
        SparkSession.builder.master("local[2,3]")  # tasks are attempted up to three times
        .config("spark.ui.enabled", "false")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .getOrCreate()
    )
    from tests.spark.crashing_source import CrashingDataSource

    spark.dataSource.register(CrashingDataSource)
    base: dict[str, Any] = {"kafka.bootstrap.servers": bootstrap}
    query = (
        spark.readStream.format("lograft")
        .options(**base, subscribe=origin, startingOffsets="earliest", maxOffsetsPerTrigger=200)
        .load()
        .select("value")
        .writeStream.format("crashing")
        .options(**base, topic=target, delivery="exactly-once", checkpointLocation=f"{folder}/cp")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    main(*sys.argv[1:])
