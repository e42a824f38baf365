"""What bytes look like, and what was meant by what was typed."""

import json
import re

import pytest

from lograft.cli.line_producer import Line, ProduceOptions, parse_line
from lograft.cli.record_reader import Filter, json_of, line_of, moment_of, parse_where
from lograft.cli.values import as_json, shown, typed
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
def test_shown(data: bytes | None, form: str, text: str) -> None:
    assert shown(data, form) == text


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
def test_as_json(data: bytes | None, value: object) -> None:
    assert as_json(data) == value


@pytest.mark.parametrize(
    ("text", "form", "data"),
    [("é", "text", "é".encode()), ("0xff", "hex", b"\xff"), ("YWI=", "base64", b"ab")],
)
def test_typed(text: str, form: str, data: bytes) -> None:
    assert typed(text, form) == data


@pytest.mark.parametrize(("text", "form"), [("zz", "hex"), ("?", "base64"), ("{", "json")])
def test_typed_wrongly(text: str, form: str) -> None:
    with pytest.raises(InvalidInput, match=f"is no {form}"):
        typed(text, form)


def test_a_record_in_a_line_and_as_json() -> None:
    assert line_of(RECORD, "auto", with_place=True) == (
        't-1@5  2023-11-14T22:13:20.123Z  k  {"a": {"b": 2}}  [h=x, n=null]'
    )
    assert line_of(RECORD, "auto", with_place=False) == '{"a": {"b": 2}}'
    assert moment_of(-1) == "-"
    told = json.loads(json_of(RECORD))
    assert (told["key"], told["value"], told["headers"]) == (
        "k",
        {"a": {"b": 2}},
        {"h": "x", "n": None},
    )


def test_what_consume_prints_is_what_produce_reads() -> None:
    line = parse_line(json_of(RECORD), 1, ProduceOptions(form="record"))
    assert line == Line(b"k", b'{"a":{"b":2}}', (("h", b"x"), ("n", None)), 1, RECORD.timestamp_ms)


def test_lines() -> None:
    options = ProduceOptions(key_separator="=>", null="NULL", headers=(("h", b"1"),), partition=2)
    assert [parse_line(text, 1, options) for text in ("a=>b", "c=>NULL", "=>x")] == [
        Line(b"a", b"b", (("h", b"1"),), 2, None),
        Line(b"c", None, (("h", b"1"),), 2, None),
        Line(b"", b"x", (("h", b"1"),), 2, None),
    ]
    with pytest.raises(InvalidInput, match="there is no '=>' between a key and a value in 'ab'"):
        parse_line("ab", 1, options)
    with pytest.raises(InvalidInput, match="line 2: "):
        parse_line("[]", 2, ProduceOptions(form="record"))


@pytest.mark.parametrize(
    ("wanted", "passes"),
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
def test_filters(wanted: Filter, passes: bool) -> None:
    assert wanted.passes(RECORD) is passes


def test_where_needs_a_sign() -> None:
    with pytest.raises(InvalidInput, match=r"write it as in customer.country=FR"):
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
def test_what_json_shows_is_json_and_comes_back_as_it_was(value: bytes | None) -> None:
    headers = (("twice", value), ("twice", b"other"), ("none", None))
    for record in (
        ConsumerRecord("t", 1, 5, 7, value, value, (("once", value),)),
        ConsumerRecord("t", 1, 5, 7, value, value, headers),
    ):
        shown_as = json_of(record)
        json.loads(shown_as, parse_constant=pytest.fail)
        shown_as.encode("utf-8")
        line = parse_line(shown_as, 1, ProduceOptions(form="record"))
        assert line == Line(value, value, tuple(record.headers), 1, 7)


def test_lines_that_are_no_utf8_are_sent_as_they_are() -> None:
    text = b"k\xff|v\xfe".decode("utf-8", "surrogateescape")
    line = parse_line(text, 1, ProduceOptions(key_separator="|"))
    assert (line.key, line.value) == (b"k\xff", b"v\xfe")
    assert Filter(key=text.partition("|")[0]).passes(RECORD._replace(key=b"k\xff"))


def test_a_header_that_comes_twice_passes_with_either_value() -> None:
    record = RECORD._replace(headers=(("h", b"x"), ("h", b"y")))
    assert Filter(headers=(("h", "x"),)).passes(record)
    assert Filter(headers=(("h", "y"),)).passes(record)
    assert not Filter(headers=(("h", "z"),)).passes(record)


def test_moments_that_no_calendar_has() -> None:
    assert moment_of((1 << 63) - 1) == f"{(1 << 63) - 1} ms"
