"""The metrics of clients, by Kafka's names.

* `declarations.py`: `ClientMetric`, which is declared next to the object that it measures, and
  `Distribution`, in which such an object records sizes and times;
* `names.py`: `MetricName` and `ClientMetrics`, which `client.metrics()` returns;
* `windows.py`: rates, averages and maxima over the last windows;
* `registry.py`: `MetricRegistry`, the metrics of one client and their reporters.

Invariants:

* the hot path only adds to attributes, per batch or request; rates and averages are computed from
  totals when metrics are read, with the totals at the start of each window;
* a metric is declared once: its names, its telemetry name (KIP-714) and its name at the /metrics of
  a broker follow from the declaration.
"""
