"""A Spark program that copies a topic exactly once and dies where it is told to:

    copy_job.py BOOTSTRAP ORIGIN TARGET FOLDER nobody|task|driver-before-commit|…

Where it is to die is told to Spark's Python processes by a file in FOLDER; the first that comes
there takes it, so that the next attempt lives.
"""

import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession


def main(bootstrap: str, origin: str, target: str, folder: str, dies: str) -> None:
    order = Path(folder) / "dies"
    if dies != "nobody":
        order.write_text(f"{dies} {os.getpid()}")
    else:
        order.unlink(missing_ok=True)
    os.environ["COPY_JOB_ORDER"] = str(order)
    spark = (
        SparkSession.builder.master("local[2,3]")  # tasks are tried three times
        .config("spark.ui.enabled", "false")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .getOrCreate()
    )
    from tests.spark.mortal_source import MortalDataSource

    spark.dataSource.register(MortalDataSource)
    base: dict[str, Any] = {"kafka.bootstrap.servers": bootstrap}
    query = (
        spark.readStream.format("lograft")
        .options(**base, subscribe=origin, startingOffsets="earliest", maxOffsetsPerTrigger=200)
        .load()
        .select("value")
        .writeStream.format("mortal")
        .options(**base, topic=target, delivery="exactly-once", checkpointLocation=f"{folder}/cp")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    main(*sys.argv[1:])
