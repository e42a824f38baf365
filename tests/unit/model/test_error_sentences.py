"""The sentences of errors stay short, whatever they repeat."""

from lograft.model.errors import MESSAGE_CHARACTERS_MAX, ErrorCode, InvalidInput, Rejected


def test_short_sentence_is_unchanged() -> None:
    assert str(InvalidInput("no such topic")) == "no such topic"


def test_sentence_fits_into_every_response() -> None:
    """Strings on the wire have at most 32767 bytes, and so may a name that is repeated."""
    text = str(InvalidInput("ü" * 40_000))
    assert len(text) == MESSAGE_CHARACTERS_MAX + 1
    assert len(text.encode()) < 32767


def test_refusal_has_the_same_bound() -> None:
    refusal = Rejected(ErrorCode.INVALID_REQUEST, "x" * 40_000)
    assert refusal.message == str(refusal)
    assert len(refusal.message) == MESSAGE_CHARACTERS_MAX + 1
