"""The fields of the protocol: how to read them from bytes, one after the other, and how to write them."""

from __future__ import annotations

import struct
from collections.abc import Collection

from .changes import Acl, Stat

INT = struct.Struct("!i")
LONG = struct.Struct("!q")
_STAT = struct.Struct("!qqqqiiiqiiq")


class Malformed(Exception):
    """The bytes do not form a request."""


class Reader:
    """Reads the fields of a frame, one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._offset = 0

    def fields(self, form: struct.Struct) -> tuple[int, ...]:
        try:
            values = form.unpack_from(self._data, self._offset)
        except struct.error:
            raise Malformed from None
        self._offset += form.size
        return values

    def number(self) -> int:
        return self.fields(INT)[0]

    def flag(self) -> bool:
        if self._offset >= len(self._data):
            raise Malformed
        self._offset += 1
        return self._data[self._offset - 1] != 0

    def buffer(self) -> bytes | None:
        length = self.number()
        if length == -1:
            return None
        end = self._offset + length
        if length < 0 or end > len(self._data):
            raise Malformed
        value, self._offset = self._data[self._offset : end], end
        return value

    def string(self) -> str | None:
        value = self.buffer()
        return None if value is None else value.decode(errors="replace")

    def path(self) -> str:
        path = self.string()
        if path is None:
            raise Malformed
        return path

    def paths(self) -> list[str]:
        return [self.path() for _ in range(self.number())]

    def acl(self) -> Acl:
        entries = []
        for _ in range(self.number()):
            permissions, scheme, name = self.number(), self.string(), self.string()
            # kazoo sends no name with the scheme "auth", which stands for all ids of the connection.
            if name is None and scheme in ("world", "digest", "ip"):
                raise Malformed
            entries.append((permissions, scheme or "", name or ""))
        return tuple(entries)


def pack_string(value: str | None) -> bytes:
    return pack_buffer(None if value is None else value.encode())


def pack_buffer(value: bytes | None) -> bytes:
    return INT.pack(-1) if value is None else INT.pack(len(value)) + value


def pack_strings(values: Collection[str]) -> bytes:
    return INT.pack(len(values)) + b"".join(map(pack_string, values))


def pack_stat(stat: Stat | None) -> bytes:
    assert stat is not None
    return _STAT.pack(*stat)
