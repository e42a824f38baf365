"""A Spark Connect program whose work is stopped, as that of the pipeline audit is; the session can
be used afterwards."""

from pyspark.sql import SparkSession

from lograft.spark.pipelines.running import Watch, run_stoppable


def main() -> None:
    spark = SparkSession.builder.remote("local[2]").getOrCreate()

    def count_for_ever() -> None:
        while spark.range(1 << 40).selectExpr("sum(rand())").collect():
            pass

    said: list[str] = []
    run_stoppable(spark, Watch(say=said.append, should_stop=lambda: True), count_for_ever)
    assert said == ["stopped on request"], said
    assert spark.range(3).count() == 3
    spark.stop()


if __name__ == "__main__":
    main()
