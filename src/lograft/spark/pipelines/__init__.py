"""Ready-made pipelines: `lograft pipeline run NAME --config FILE.toml`, or from Python:

    from lograft.spark.pipelines.running import run_pipeline

    run_pipeline("lake", "orders.toml")

lake: a partitioned table of the records · windows: aggregates over event time · audit: a report on
the contents of the log and the groups that read it · state: the latest value of every key. The
streaming pipelines read their topics through `format("lograft")`, keep their position in a
checkpoint and write every record exactly once.
"""
