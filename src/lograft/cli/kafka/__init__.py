"""Kafka's own command line tools: `lograft kafka-topics --create …`, with Kafka's flags and output.

For scripts, courses and people that use Kafka's tools. There is one file per tool; `tools.py` runs
them. Lograft's own commands do the same and more, with fewer options.
"""
