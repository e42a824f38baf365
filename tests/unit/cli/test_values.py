"""Formats of keys and values, and parsing of lines."""

import json
import re

import pytest

from lograft.cli.line_producer import Line, ProduceOptions, parse_line
from lograft.cli.record_reader import Filter, format_timestamp, json_of, line_of, parse_where
from lograft.cli.values import encode_text, format_bytes, to_json
from lograft.client.types import ConsumerRecord
from lograft.model.errors import InvalidInput

RECORD = ConsumerRecord(
    "t", 1, 5, 1_700_000_000_123, b"k", b'{"a": {"b": 2}}', (("h", b"x"), ("n", None))
)


@pytest.mark.parametrize(
    ("data", "form", "text"),
    [
        (None, "auto", "null"),
        (b"plain", "auto", "plain"),
        (b'{"a": 1}', "auto", '{"a": 1}'),
        (b"\x00\xff", "auto", "0x00ff"),
        (b"bell\x07", "auto", "0x62656c6c07"),
        ("é".encode(), "text", "é"),
        (b'{"a": 1}', "json", '{"a":1}'),
        (b"no json", "json", "no json"),
        (b"ab", "hex", "6162"),
        (b"ab", "base64", "YWI="),
    ],
)
def test_format_bytes(data: bytes | None, form: str, text: str) -> None:
    assert format_bytes(data, form) == text


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (None, None),
        (b"x", "x"),
        (b"1", 1),
        (b'{"a":[1]}', {"a": [1]}),
        (b"\xff", "0xff"),
        (b"0x", "0x3078"),
        (b"null", "null"),
        (b'"quoted"', '"quoted"'),
        (b"1.5", 1.5),
        (b"1.50", "1.50"),
        (b"1e999", "1e999"),
        (b"NaN", "NaN"),
        (b'{"a":-Infinity}', '{"a":-Infinity}'),
        (b'{"a":1,"a":2}', '{"a":1,"a":2}'),
        (rb'"\ud800"', r'"\ud800"'),
        (b"[" * 100_000, "[" * 100_000),
    ],
)
def test_to_json(data: bytes | None, value: object) -> None:
    assert to_json(data) == value


@pytest.mark.parametrize(
    ("text", "form", "data"),
    [("é", "text", "é".encode()), ("0xff", "hex", b"\xff"), ("YWI=", "base64", b"ab")],
)
def test_encode_text(text: str, form: str, data: bytes) -> None:
    assert encode_text(text, form) == data


@pytest.mark.parametrize(("text", "form"), [("zz", "hex"), ("?", "base64"), ("{", "json")])
def test_encode_text_rejects_invalid_input(text: str, form: str) -> None:
    with pytest.raises(InvalidInput, match=f"is not valid {form}"):
        encode_text(text, form)


def test_a_record_as_text_and_as_json() -> None:
    assert line_of(RECORD, "auto", with_metadata=True) == (
        't-1@5  2023-11-14T22:13:20.123Z  k  {"a": {"b": 2}}  [h=x, n=null]'
    )
    assert line_of(RECORD, "auto", with_metadata=False) == '{"a": {"b": 2}}'
    assert format_timestamp(-1) == "-"
    record = json.loads(json_of(RECORD))
    assert (record["key"], record["value"], record["headers"]) == (
        "k",
        {"a": {"b": 2}},
        {"h": "x", "n": None},
    )


def test_produce_reads_the_json_of_consume() -> None:
    line = parse_line(json_of(RECORD), 1, ProduceOptions(form="record"))
    assert line == Line(b"k", b'{"a":{"b":2}}', (("h", b"x"), ("n", None)), 1, RECORD.timestamp_ms)


def test_lines_are_parsed() -> None:
    options = ProduceOptions(key_separator="=>", null="NULL", headers=(("h", b"1"),), partition=2)
    assert [parse_line(text, 1, options) for text in ("a=>b", "c=>NULL", "=>x")] == [
        Line(b"a", b"b", (("h", b"1"),), 2, None),
        Line(b"c", None, (("h", b"1"),), 2, None),
        Line(b"", b"x", (("h", b"1"),), 2, None),
    ]
    with pytest.raises(InvalidInput, match=r"^no key separator '=>' in 'ab'"):
        parse_line("ab", 1, options)
    with pytest.raises(InvalidInput, match="line 2: "):
        parse_line("[]", 2, ProduceOptions(form="record"))


@pytest.mark.parametrize(
    ("filter_", "matches"),
    [
        (Filter(), True),
        (Filter(key="k"), True),
        (Filter(key="other"), False),
        (Filter(grep=re.compile('"b": \\d')), True),
        (Filter(grep=re.compile("z")), False),
        (Filter(where=parse_where(["a.b=2"])), True),
        (Filter(where=parse_where(["a.b=3"])), False),
        (Filter(where=parse_where(["a.c.d=x"])), False),
        (Filter(headers=(("h", "x"),)), True),
        (Filter(headers=(("h", "y"),)), False),
        (Filter(headers=(("z", "y"),)), False),
    ],
)
def test_filters(filter_: Filter, matches: bool) -> None:
    assert filter_.matches(RECORD) is matches


def test_where_requires_an_equals_sign() -> None:
    with pytest.raises(InvalidInput, match=r"write FIELD=VALUE"):
        parse_where(["a.b"])


@pytest.mark.parametrize(
    "value",
    [
        *(b"0xab", b"null", b'"quoted"', b"1.50", b"1e999", b"NaN", b'{"a":1,"a":2}', b"\xff\x00"),
        *(
            rb'["\ud800"]',
            b"",
            b"7",
            b"true",
            b'{"a":[1,null]}',
            b"two\nlines",
            b"[" * 100_000,
            None,
        ),
    ],
)
def test_json_output_round_trips_through_produce(value: bytes | None) -> None:
    headers = (("twice", value), ("twice", b"other"), ("none", None))
    for record in (
        ConsumerRecord("t", 1, 5, 7, value, value, (("once", value),)),
        ConsumerRecord("t", 1, 5, 7, value, value, headers),
    ):
        text = json_of(record)
        json.loads(text, parse_constant=pytest.fail)
        text.encode("utf-8")
        line = parse_line(text, 1, ProduceOptions(form="record"))
        assert line == Line(value, value, tuple(record.headers), 1, 7)


def test_lines_that_are_not_utf8_are_sent_unchanged() -> None:
    text = b"k\xff|v\xfe".decode("utf-8", "surrogateescape")
    line = parse_line(text, 1, ProduceOptions(key_separator="|"))
    assert (line.key, line.value) == (b"k\xff", b"v\xfe")
    assert Filter(key=text.partition("|")[0]).matches(RECORD._replace(key=b"k\xff"))


def test_a_repeated_header_matches_with_either_value() -> None:
    record = RECORD._replace(headers=(("h", b"x"), ("h", b"y")))
    assert Filter(headers=(("h", "x"),)).matches(record)
    assert Filter(headers=(("h", "y"),)).matches(record)
    assert not Filter(headers=(("h", "z"),)).matches(record)


def test_timestamps_outside_the_range_of_datetime() -> None:
    assert format_timestamp((1 << 63) - 1) == f"{(1 << 63) - 1} ms"
