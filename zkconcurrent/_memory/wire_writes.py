"""The writes of the protocol: how their bodies are read, and the bodies of their replies."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from . import changes
from .fields import INT, LONG, Malformed, Reader, pack_stat, pack_string

_CREATE, _CREATE2, _CONTAINER, _TTL = 1, 15, 19, 21
_DELETE, _SET_DATA, _CHECK, _FAILED = 2, 5, 13, -1

_PART = struct.Struct("!i?i")
_END = _PART.pack(-1, True, -1)


def _read_create(reader: Reader, *, container: bool = False) -> changes.Create:
    return changes.Create(reader.path(), reader.buffer(), reader.acl(), reader.number(), container)


def _read_delete(reader: Reader) -> changes.Delete:
    return changes.Delete(reader.path(), reader.number())


def _read_set_data(reader: Reader) -> changes.SetData:
    return changes.SetData(reader.string() or "", reader.buffer(), reader.number())


def _read_set_acl(reader: Reader) -> changes.SetAcl:
    return changes.SetAcl(reader.string() or "", reader.acl(), reader.number())


def _answer_path(made: changes.Step, _: changes.Stat | None) -> bytes:
    assert isinstance(made, changes.Made)
    return pack_string(made.path)


def _answer_made(made: changes.Step, stat: changes.Stat | None) -> bytes:
    return _answer_path(made, stat) + pack_stat(stat)


def _answer_written(_: changes.Step, stat: changes.Stat | None) -> bytes:
    return pack_stat(stat)


# For each single write, two functions: one reads it, and one makes its reply from the step and the node's new stat.
WRITES: dict[
    int, tuple[Callable[[Reader], changes.Operation], Callable[[changes.Step, changes.Stat | None], bytes]]
] = {
    _CREATE: (_read_create, _answer_path),
    _DELETE: (_read_delete, lambda *_: b""),
    _SET_DATA: (_read_set_data, _answer_written),
    7: (_read_set_acl, _answer_written),
    _CREATE2: (_read_create, _answer_made),
    _CONTAINER: (partial(_read_create, container=True), _answer_made),
    _TTL: (_read_create, _answer_made),  # refused by its flags
}


def read_multi(reader: Reader) -> Iterator[changes.Operation]:
    """Yield the operations of a multi."""
    while True:
        opcode, done, _ = reader.fields(_PART)
        if done:
            return
        if opcode in (_CREATE, _CREATE2, _CONTAINER, _TTL):
            create = _read_create(reader)
            if opcode == _TTL:
                reader.fields(LONG)
            # In a multi, the flags decide what is made; elsewhere, the opcode does.
            yield create._replace(container=create.flags == changes.CONTAINER_FLAG)
        elif opcode == _DELETE:
            yield _read_delete(reader)
        elif opcode == _SET_DATA:
            yield _read_set_data(reader)
        elif opcode == _CHECK:
            yield changes.Check(reader.string() or "", reader.number())
        else:
            raise Malformed


def pack_results(change: changes.Change, stats: Iterable[changes.Stat | None]) -> bytes:
    """Return the reply to a multi."""
    return b"".join(map(_result, change, stats)) + _END


def pack_failure(count: int, index: int, code: changes.Code) -> bytes:
    """Return the reply to a multi of `count` operations, of which the one at `index` was refused."""
    codes = [0 if n < index else changes.Code.RUNTIME_INCONSISTENCY for n in range(count)]
    codes[index] = code
    return b"".join(_PART.pack(_FAILED, False, each) + INT.pack(each) for each in codes) + _END


def _result(step: changes.Step, stat: changes.Stat | None) -> bytes:
    """Return the result of one operation of a multi."""
    if isinstance(step, changes.Made):
        if step.owner == changes.CONTAINER:
            return _PART.pack(_CREATE2, False, 0) + _answer_made(step, stat)
        return _PART.pack(_CREATE, False, 0) + pack_string(step.path)
    if isinstance(step, changes.Written):
        return _PART.pack(_SET_DATA, False, 0) + pack_stat(stat)
    return _PART.pack(_CHECK if isinstance(step, changes.Checked) else _DELETE, False, 0)
