"""The trace context that a producer adds to a record: the headers of W3C Trace Context."""

import re
from typing import Final, NamedTuple

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
#: A longer state is not passed on, which the specification permits.
STATE_LENGTH_MAX: Final = 512
_SAMPLED: Final = 0x01
#: Version, trace id, span id, flags; versions after 00 may have further parts.
_PARENT: Final = re.compile(
    rb"(?!ff)([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL
)
_STATE: Final = re.compile(rb"[\x20-\x7e]*")


class TraceContext(NamedTuple):
    trace_id: bytes
    #: Of the span that is the parent.
    span_id: bytes
    flags: int
    #: Of the header tracestate.
    state: str = ""

    @property
    def is_sampled(self) -> bool:
        return bool(self.flags & _SAMPLED)

    def is_within(self, ratio: float) -> bool:
        """Returns whether this trace belongs to a share of all traces. Depends on the trace id
        only, so all nodes choose the same traces."""
        return int.from_bytes(self.trace_id[8:]) < ratio * 2**64


def parse_trace_context(parent: bytes, state: bytes | None = None) -> TraceContext | None:
    """Returns None if the parent is not valid; a state that is not valid is ignored."""
    match = _PARENT.fullmatch(parent)
    if match is None:
        return None
    version, trace_id, span_id, flags, rest = match.groups()
    if (version == b"00" and rest) or not trace_id.strip(b"0") or not span_id.strip(b"0"):
        return None
    text = ""
    if state is not None and len(state) <= STATE_LENGTH_MAX and _STATE.fullmatch(state):
        text = state.decode()
    return TraceContext(
        bytes.fromhex(trace_id.decode()), bytes.fromhex(span_id.decode()), int(flags, 16), text
    )
