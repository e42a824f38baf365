from typing import Any

import pytest

from lograft.security.base64url import decode_base64url


@pytest.mark.parametrize("text", ["YQ==", "Y", "a+b/", "YR", "ä", 7, None, "YQ\n"])
def test_base64url_has_one_form(text: Any) -> None:
    with pytest.raises(ValueError, match="base64url"):
        decode_base64url(text)
    assert decode_base64url("YQ") == b"a"
