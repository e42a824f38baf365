"""Tests of the HTML report."""

import re

from lograft.spark.pipelines.report import Section, chart, format_value, page


def test_page_shows_tables_and_bars_and_escapes_text() -> None:
    section = Section("Keys", "a note", ("key", "n"), [("<b>", 1200), ("x", None)], [("<b>", 2.0)])
    html = page("Title & more", "here", [section])
    assert "<title>Title &amp; more</title>" in html
    assert "<td>&lt;b&gt;</td><td class=n>1,200</td>" in html
    assert "<td>–</td>" in html
    assert html.count("<rect ") == 1
    assert "<b>" not in html


def test_bar_lengths_are_proportional() -> None:
    svg = chart([("all", 10.0), ("half", 5.0), ("none", 0.0)])
    assert 'width="360.0"' in svg
    assert 'width="180.0"' in svg
    assert 'width="0.0"' in svg


def test_long_labels_do_not_overlap_their_bars() -> None:
    svg = chart([("a" * 100 + " orders-0", 1.0), ("short", 2.0)])
    begins = {float(x) for x in re.findall(r'<rect x="([\d.]+)"', svg)}
    [label] = re.findall(r"</title>(a+….*?)</text>", svg)
    assert label.endswith(" orders-0")
    assert begins == {len(label) * 7 + 10}
    assert f"<title>{'a' * 100} orders-0</title>" in svg


def test_values_are_formatted_for_readers() -> None:
    assert [format_value(value) for value in (1234567, 0.123, 250.4, True)] == [
        "1,234,567",
        "0.12",
        "250",
        "yes",
    ]
