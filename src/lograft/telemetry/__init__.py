"""What a node sends to an OpenTelemetry collector: metrics and spans, as OTLP over HTTP.

Invariants:

* nothing here is imported or runs unless `lograft.otlp.endpoint` is set;
* the data path never waits for the collector: metrics are collected in slices like a scrape, spans
  are made from a bounded queue (`broker/record_traces.py`), and what does not fit is dropped and
  counted;
* a collector that does not answer is asked less and less often, with one line in the log.

Entry point: `exporter.OtlpExporter`, which `node.py` owns.
"""
