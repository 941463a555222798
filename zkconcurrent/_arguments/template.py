"""The path of a lock, made from a call's arguments by a template of `synchronized`: `/users/{user.id}`.

A template is checked when it is made. Each value is escaped: it stays within its part of the path, so no argument can
lead outside the template, and different texts give different paths.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import re
import string
import uuid
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from .paths import escape

# In bytes of UTF-8, when escaped: the usual limit for a file name.
LONGEST_FIELD = 255
# Formats whose text depends on the locale or the time zone of the process.
_LOCAL_NUMBER = re.compile("n$")
_LOCAL_DATE = re.compile("%[-_0^#EO]*[aAbBchpPrsxX+]")


class Field(NamedTuple):
    """One `{...}` of a template.

    Attributes:
        before: the text before this field, from the end of the previous field on.
        name: the field as written, such as `user.id`; empty for the text at the end.
        argument: the name of the argument that the field begins with.
        form: the conversion and the format that turn its value into text.
        spec: the format alone.
    """

    before: str
    name: str
    argument: str
    form: str
    spec: str


class Template:
    """The path of a lock, with fields for the arguments of a call: `/users/{user.id}`.

    Raises:
        TypeError: it is not a string.
        ValueError: its syntax is wrong; or one part of the path has two fields, so that different values could make the
            same path.
    """

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise TypeError(f"a template must be a str, not {type(text).__name__}")
        self._text = text
        try:
            parsed = list(string.Formatter().parse(text))
        except ValueError as error:
            raise ValueError(f"the template {text!r} is wrong: {error}") from None
        self._fields = [self._field(*each) for each in parsed]
        if any("/" not in after.before for after in self._fields[1:] if after.name):
            raise ValueError(
                f"the template {text!r} has two fields in one part of the path, so different values could make the "
                "same path: put a '/' between them"
            )

    def _field(self, before: str, name: str | None, spec: str | None, conversion: str | None) -> Field:
        if name is None:
            return Field(before, "", "", "", "")
        argument = re.split(r"[.\[]", name)[0]
        if not argument.isidentifier():
            raise ValueError(f"the template {self._text!r} has a field {{{name}}}: name an argument of the function")
        if "{" in (spec or ""):
            raise ValueError(f"the template {self._text!r} has a field in the format of {{{name}}}")
        form = (f"!{conversion}" if conversion else "") + (f":{spec}" if spec else "")
        # Find the syntax errors that would otherwise show only in use.
        try:
            string.Formatter().get_field(name, (), {argument: _Anything()})
            if conversion:
                string.Formatter().convert_field("", conversion)
        except ValueError as error:
            raise ValueError(f"the template {self._text!r} is wrong in {{{name}}}: {error}") from None
        return Field(before, name, argument, form, spec or "")

    @property
    def arguments(self) -> list[str]:
        """The names of the arguments in its fields."""
        return [field.argument for field in self._fields if field.name]

    def check(self, function: str, parameters: Collection[str]) -> None:
        """Refuse a function that lacks an argument of a field.

        Raises:
            ValueError: it lacks one.
        """
        for argument in self.arguments:
            if argument not in parameters:
                has = ", ".join(parameters) or "none"
                raise ValueError(f"{function} has no argument {argument!r}, which the path names; it has {has}")

    def fill(self, value: Callable[[Field], str]) -> str:
        """Return the path, with the text that `value` returns for each field."""
        return "".join(field.before + (value(field) if field.name else "") for field in self._fields)

    def path(self, arguments: Mapping[str, object]) -> str:
        """Return the path for the arguments of a call.

        Raises:
            TypeError: a field's value is not a scalar and has no `__lock_name__`; or its format is for other types.
            ValueError: a value's text is empty or too long, or depends on the process.
        """
        return self.fill(lambda field: self._value(field, arguments))

    def _value(self, field: Field, arguments: Mapping[str, object]) -> str:
        value, _ = string.Formatter().get_field(field.name, (), arguments)
        which = f"{{{field.name}}} of {self._text!r}"
        if (hook := getattr(type(value), "__lock_name__", None)) is not None:
            value = hook(value)
        try:
            text = f"{{0{field.form}}}".format(scalar(value, field.spec))
        except TypeError as error:
            raise TypeError(f"{which}: {error}") from None
        except (ValueError, OverflowError) as error:
            raise ValueError(f"{which}: {error}") from None
        if not text:
            raise ValueError(f"{which} is empty in this call: a path can't have an empty part")
        # Check the unescaped text first: escaping takes time, and only makes it longer.
        if len(text) <= LONGEST_FIELD:
            escaped = escape(text)
            if len(escaped.encode()) <= LONGEST_FIELD:
                return escaped
        raise ValueError(f"{which} is too long in this call: {LONGEST_FIELD} bytes at most, escaped and in UTF-8")


def scalar(value: object, spec: str = "") -> Any:
    """Return the plain form of a value to format in a path: equal values give equal texts, in every process.

    An object of a subclass counts as its base type; its own `__str__` and `__format__` are ignored.

    Args:
        value: the value of a field, or the result of its `__lock_name__`.
        spec: the format that turns it into text.

    Raises:
        TypeError: the value is not a scalar: its text may differ between processes, or between equal values.
        ValueError: the text of this value, or its text in this format, may differ between processes.
    """
    # Not `__class__`, as a proxy shows the class of another object there.
    kind = type(value)
    for base, plain in _PLAIN.items():
        if issubclass(kind, base):
            value = plain(value)
            break
    else:
        raise TypeError(
            f"a {kind.__name__} has no text that identifies it in all processes: name an attribute of it, pass a str "
            "or an int, or give its class a method __lock_name__ that returns one"
        )
    local = _LOCAL_DATE if isinstance(value, datetime.date) else _LOCAL_NUMBER
    if not isinstance(value, str) and local.search(spec):
        raise ValueError(f"the text of the format {spec!r} depends on the locale of the process")
    return value


def _of_enum(value: enum.Enum) -> str:
    # A value of several flags has no name of its own.
    name = value._name_ if value._name_ in type(value).__members__ else value._value_
    return f"{type(value).__name__}.{name}"


def _of_decimal(value: decimal.Decimal) -> decimal.Decimal:
    """Return the number normalized, so that `1`, `1.0` and `1E+0` have the same text."""
    sign, digits, exponent = decimal.Decimal.as_tuple(value)
    if not isinstance(exponent, int):
        raise ValueError(f"{value} is no number")
    number = "".join(map(str, digits)).lstrip("0")
    kept = number.rstrip("0")
    if not kept:
        return decimal.Decimal(0)
    exponent += len(number) - len(kept)
    if 0 < exponent <= LONGEST_FIELD:
        kept, exponent = kept + "0" * exponent, 0
    return decimal.Decimal((sign, tuple(map(int, kept)), exponent))


def _of_datetime(value: datetime.datetime) -> datetime.datetime:
    """Return an aware datetime in UTC: the same moment in two time zones gives one lock."""
    plain = datetime.datetime.combine(_of_date(value), value.timetz())
    return plain if plain.utcoffset() is None else plain.astimezone(datetime.timezone.utc)


def _of_date(value: datetime.date) -> datetime.date:
    return datetime.date(value.year, value.month, value.day)


# The scalar types, and the function that makes each plain; the first match is used. An IntEnum counts as an int, and a
# StrEnum as a str, since they are equal to those.
_PLAIN: dict[type, Callable[[Any], Any]] = {
    str: str.__str__,
    bool: bool,
    int: int.__index__,
    enum.Enum: _of_enum,
    bytes: bytes.__repr__,
    uuid.UUID: uuid.UUID.__str__,
    datetime.datetime: _of_datetime,
    datetime.date: _of_date,
    decimal.Decimal: _of_decimal,
}


class _Anything:
    """An object with every attribute and item; it replaces the argument when a template is checked."""

    def __getattr__(self, name: str) -> _Anything:
        return self

    def __getitem__(self, key: object) -> _Anything:
        return self
