import pytest
from hypothesis import given
from hypothesis import strategies as st

from lograft.model.errors import InvalidInput
from lograft.model.properties import format_properties, parse_properties


def test_parses_like_java() -> None:
    text = (
        "# comment\n! another\n\n"
        "a=1\n  b : 2\nc 3\nd==x\ne=\nf\n"
        "dirs=/one,\\\n    /two\n"
        "path=C:\\\\tmp\\tx\nkey\\ with\\=signs=v\nsmile=\\ud83d\\ude00 \\u00e4\r\n"
        "a=last wins \n"
    )
    assert parse_properties(text) == {
        "a": "last wins ",
        "b": "2",
        "c": "3",
        "d": "=x",
        "e": "",
        "f": "",
        "dirs": "/one,/two",
        "path": "C:\\tmp\tx",
        "key with=signs": "v",
        "smile": "😀 ä",
    }


def test_continued_last_line_is_parsed() -> None:
    assert parse_properties("a=1\\") == {"a": "1"}


def test_invalid_escape_is_reported_with_its_line() -> None:
    with pytest.raises(InvalidInput, match="line 2"):
        parse_properties("a=1\nb=\\u12")


def test_comments_are_written_first() -> None:
    assert format_properties({"version": "1"}, comments=("", "now")) == "#\n#now\nversion=1\n"


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(st.dictionaries(texts.filter(bool), texts, max_size=5))
def test_written_values_are_read_back(values: dict[str, str]) -> None:
    assert parse_properties(format_properties(values)) == values


@given(st.text(max_size=60))
def test_any_text_is_parsed_or_rejected(text: str) -> None:
    try:
        parse_properties(text)
    except InvalidInput:
        pass
