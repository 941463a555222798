"""The codecs of the package: what they can't decode is a ValueError, which means bad data."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkconcurrent import JSON, MSGPACK, TEXT

pytestmark = pytest.mark.fault(249)


@pytest.mark.parametrize("codec", [TEXT, JSON, MSGPACK], ids=repr)
@given(data=st.binary())
def test_it_decodes_or_raises_value_error(codec: Any, data: bytes) -> None:
    """Whatever the bytes are, no other error comes."""
    with suppress(ValueError):
        codec.decode(data)


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        (TEXT, b"\xff"),
        *((JSON, data) for data in (b"", b"\xff", b"{", b"1 2", b"[" * 200_000)),
        # Empty, of no type, too short, too long, bad UTF-8, a key that is no string, nested too deep.
        *(
            (MSGPACK, data)
            for data in (b"", b"\xc1", b"\x92\x01", b"\x01\x02", b"\xa1\xff", b"\x81\x01\x02", b"\x91" * 5000)
        ),
    ],
)
def test_bad_data(codec: Any, data: bytes) -> None:
    """These are bad in each way that the format has."""
    with pytest.raises(ValueError):  # noqa: PT011 # each has its own text
        codec.decode(data)
