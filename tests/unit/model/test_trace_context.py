import pytest

from lograft.model.trace_context import (
    STATE_LENGTH_MAX,
    TraceContext,
    parse_trace_context,
)

TRACE = bytes.fromhex("4bf92f3577b34da6a3ce929d0e0e4736")
PARENT = bytes.fromhex("00f067aa0ba902b7")
HEADER = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_the_example_of_the_specification() -> None:
    context = parse_trace_context(HEADER, b"congo=t61rcWkgMzE")
    assert context == TraceContext(TRACE, PARENT, 1, "congo=t61rcWkgMzE")
    assert context.is_sampled


@pytest.mark.parametrize(("flags", "is_sampled"), [(b"00", False), (b"02", False), (b"03", True)])
def test_the_sampled_flag(flags: bytes, is_sampled: bool) -> None:
    context = parse_trace_context(HEADER[:-2] + flags)
    assert context is not None
    assert context.is_sampled is is_sampled


def test_a_later_version_may_have_further_parts() -> None:
    assert parse_trace_context(b"01" + HEADER[2:] + b"-more") is not None
    assert parse_trace_context(b"01" + HEADER[2:] + b"more") is None


@pytest.mark.parametrize(
    "header",
    [
        b"",
        HEADER[:-1],
        HEADER + b"-more",
        HEADER + b"\n",
        b"ff" + HEADER[2:],
        HEADER.upper(),
        HEADER.replace(b"4bf92f3577b34da6a3ce929d0e0e4736", b"0" * 32),
        HEADER.replace(b"00f067aa0ba902b7", b"0" * 16),
        HEADER.replace(b"-", b"_"),
        b"\xff" * 55,
    ],
)
def test_headers_that_are_not_valid(header: bytes) -> None:
    assert parse_trace_context(header) is None


@pytest.mark.parametrize("state", [None, b"x" * (STATE_LENGTH_MAX + 1), b"a=\n", b"\xff"])
def test_a_state_that_is_not_valid_is_ignored(state: bytes | None) -> None:
    assert parse_trace_context(HEADER, state) == TraceContext(TRACE, PARENT, 1)


def test_a_ratio_chooses_by_the_trace_id_alone() -> None:
    low, high = bytes(15) + b"\x01", bytes(8) + b"\xff" * 8
    for trace_id, ratio, is_chosen in (
        (low, 0.0, False),
        (low, 0.5, True),
        (high, 0.5, False),
        (high, 1.0, True),
    ):
        for parent in (PARENT, TRACE[:8]):
            assert TraceContext(trace_id, parent, 1).is_within(ratio) is is_chosen
