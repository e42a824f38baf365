"""A Spark Connect program whose work is stopped, like that of the pipeline audit; afterwards the
session is still usable."""

from pyspark.sql import SparkSession

from lograft.spark.pipelines.running import RunObserver, run_stoppable


def main() -> None:
    spark = SparkSession.builder.remote("local[2]").getOrCreate()

    def count_forever() -> None:
        while spark.range(1 << 40).selectExpr("sum(rand())").collect():
            pass

    messages: list[str] = []
    run_stoppable(
        spark, RunObserver(on_message=messages.append, should_stop=lambda: True), count_forever
    )
    assert messages == ["stopped on request"], messages
    assert spark.range(3).count() == 3
    spark.stop()


if __name__ == "__main__":
    main()
