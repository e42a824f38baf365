"""Ready pipelines: `lograft pipeline run NAME --config FILE.toml`, or a function call each.

    from lograft.spark.pipelines.running import run_pipeline

    run_pipeline("lake", "orders.toml")

lake: topics become a partitioned table · windows: aggregates over event time · audit: what is in
the log and who has read it · state: the latest value of every key. Each reads its topics through
`format("lograft")`, keeps its place in a checkpoint, and writes every record once.
"""
