"""The broker: partitions, their logs, and the metadata image they follow.

How the composition root uses it, in this order:

    broker = Broker(
        runtime,
        config,                      # BrokerConfig
        cluster_id=...,              # str, as in meta.properties
        controller=...,              # .submit(decision) -> awaitable reply (broker/controller.py)
        producer_ids=...,            # async .next() -> (ProducerId, ProducerEpoch)
        halt=...,                    # Callable[[str], None]: stop the node, with the reason
    )
    driver.add_listener(broker.on_committed)   # sync, in order, from the first record on
    ... wait until the driver has delivered what is committed ...
    await broker.load()              # opens and recovers every log, makes missing ones
    ... register, unfence, open the listeners ...
    await broker.stop()              # after the listeners are closed: flush, snapshots, checkpoints

`on_committed(offset, epoch, records)` before `load()` only builds the image; after it each call
also creates, changes and deletes partitions. It never blocks: files are made by workers, and a
partition whose log is still being made lets its requests wait.

What `api/` uses: `config`, `image`, `cluster_id`, `node_id`, `partitions` (PartitionTable),
`logs` (LogManager), `controller`, `fetch_sessions`, `producer_ids`, `runtime`, `clock`.
"""
