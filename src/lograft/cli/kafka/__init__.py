"""Kafka's own command line tools: `lograft kafka-topics --create …`, with Kafka's flags and output.

For whoever has Kafka's commands in their fingers, their scripts or their course. One file per tool;
`tools.py` is the way in. Lograft's own commands do the same and more, in fewer words.
"""
