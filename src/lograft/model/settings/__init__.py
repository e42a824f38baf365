"""Settings of brokers, topics, groups and client metrics, with Kafka's names.

`broker_table` and `topic` list every setting with type, default, limits and effect (`effects`);
`broker.BrokerConfig` and `topic.TopicConfig` are the typed values that code reads. `dynamic`
applies and checks changes at run time, `resolution` finds where a value comes from, `providers`
replaces variables in the configuration file.

Invariants: a setting that is accepted is used, or its row says why it has no effect; a value is
checked before it is stored.
"""
