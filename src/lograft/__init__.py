"""Lograft: a distributed log and message queue that speaks Apache Kafka's wire protocol."""

__version__ = "0.1.0"
