"""Error messages stay short, whatever they repeat."""

from lograft.model.errors import MESSAGE_CHARACTERS_MAX, ErrorCode, InvalidInput, Rejected


def test_short_message_is_unchanged() -> None:
    assert str(InvalidInput("no such topic")) == "no such topic"


def test_message_fits_into_every_response() -> None:
    """Strings in the protocol have at most 32767 bytes, and so may a repeated name."""
    text = str(InvalidInput("ü" * 40_000))
    assert len(text) == MESSAGE_CHARACTERS_MAX + 1
    assert len(text.encode()) < 32767


def test_rejection_has_the_same_limit() -> None:
    rejection = Rejected(ErrorCode.INVALID_REQUEST, "x" * 40_000)
    assert rejection.message == str(rejection)
    assert len(rejection.message) == MESSAGE_CHARACTERS_MAX + 1
