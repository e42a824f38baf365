"""Broken invariants with a name. They are assertions: no client and no setting can cause them."""

from lograft.model.types import Offset


class TruncatesCommitted(AssertionError):
    """The leader's log lacks records that this replica knows to be committed. Only an unclean
    election may do that; anything else means that acknowledged records are being lost."""

    def __init__(self, to: Offset, *, high_watermark: Offset) -> None:
        super().__init__(
            f"cutting the log to {to} would lose {high_watermark - to} committed records"
            f" (high watermark {high_watermark})"
        )
        self.to = to
        self.high_watermark = high_watermark
