import re

from lograft.http.exposition import SLICE_SERIES, write_families
from lograft.model.metrics import Counter, Gauge, Histogram, Label, gather_all

PAUSES = Counter(
    "lograft_test_pauses_total", 'Number of times a "client" was paused.', Label("who", 9)
)
SIZE = Gauge("lograft_test_size_bytes", "Size of the log.")
WAIT = Histogram("lograft_test_wait_seconds", "Time to wait.", bounds=(0.5, 1))
MANY = Gauge("lograft_test_many", "A gauge of many series.", Label("number", 10_000))


def text_of(*samples: object, openmetrics: bool) -> str:
    return "".join(write_families(gather_all(iter(samples)), openmetrics=openmetrics))  # type: ignore[arg-type]


def recorded() -> object:
    recorder = WAIT.make_recorder()
    for seconds in (0.5, 0.75, 7):
        recorder.observe(seconds)
    return WAIT.sample(recorder)


def test_openmetrics() -> None:
    samples = (SIZE.sample(5), PAUSES.sample(2, "a"), recorded())
    assert text_of(*samples, openmetrics=True) == (
        "# TYPE lograft_test_pauses counter\n"
        '# HELP lograft_test_pauses Number of times a \\"client\\" was paused.\n'
        'lograft_test_pauses_total{who="a"} 2\n'
        "# TYPE lograft_test_size_bytes gauge\n"
        "# UNIT lograft_test_size_bytes bytes\n"
        "# HELP lograft_test_size_bytes Size of the log.\n"
        "lograft_test_size_bytes 5\n"
        "# TYPE lograft_test_wait_seconds histogram\n"
        "# UNIT lograft_test_wait_seconds seconds\n"
        "# HELP lograft_test_wait_seconds Time to wait.\n"
        'lograft_test_wait_seconds_bucket{le="0.5"} 1\n'
        'lograft_test_wait_seconds_bucket{le="1.0"} 2\n'
        'lograft_test_wait_seconds_bucket{le="+Inf"} 3\n'
        "lograft_test_wait_seconds_sum 8.25\n"
        "lograft_test_wait_seconds_count 3\n"
        "# EOF\n"
    )


def test_the_older_format_names_counters_in_full_and_has_no_end() -> None:
    assert text_of(PAUSES.sample(2, "a"), openmetrics=False) == (
        "# TYPE lograft_test_pauses_total counter\n"
        '# HELP lograft_test_pauses_total Number of times a "client" was paused.\n'
        'lograft_test_pauses_total{who="a"} 2\n'
    )


def test_label_values_are_escaped() -> None:
    text = text_of(PAUSES.sample(1, 'a"b\\c\nd'), openmetrics=False)
    assert text.endswith('{who="a\\"b\\\\c\\nd"} 1\n')
    assert len(text.splitlines()) == 3


def test_large_collections_are_written_in_slices() -> None:
    families = gather_all(MANY.sample(1, str(number)) for number in range(5 * SLICE_SERIES))
    slices = list(write_families(families, openmetrics=True))
    assert max(text.count("\nlograft_test_many{") for text in slices) <= SLICE_SERIES
    assert len(re.findall("^lograft_test_many{", "".join(slices), re.MULTILINE)) == 5 * SLICE_SERIES
