"""Violated invariants. They are assertion errors, since no client and no setting can cause them."""

from lograft.model.types import Offset


class TruncatesCommitted(AssertionError):
    """The leader's log lacks records that this replica knows to be committed. That is legal only
    after an unclean election; otherwise acknowledged records are being lost."""

    def __init__(self, to: Offset, *, high_watermark: Offset) -> None:
        super().__init__(
            f"truncating the log to {to} would lose {high_watermark - to} committed records"
            f" (high watermark {high_watermark})"
        )
        self.to = to
        self.high_watermark = high_watermark
