"""Templates of paths are checked when a function is decorated, and no argument leads out of what they say."""

from __future__ import annotations

import copy
import datetime
import decimal
import enum
import functools
import inspect
import pickle
import threading
import types
import uuid
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import wrapt
from hypothesis import example, given
from hypothesis import strategies as st
from kazoo.client import KazooClient

import zkconcurrent
import zkconcurrent.aio
from tests.conftest import InThread
from zkconcurrent import synchronized
from zkconcurrent._arguments.paths import check_path, escape
from zkconcurrent._arguments.template import LONGEST_FIELD, Template

client = KazooClient()  # never started: nothing is sent
TEXT = st.text(min_size=1, max_size=20)
EAST = datetime.timezone(datetime.timedelta(hours=2))


class Color(enum.Enum):
    """Plain members."""

    RED = "r"
    CRIMSON = "r"  # noqa: PIE796 - another name for it

    def __str__(self) -> str:
        return f"<{id(self)}>"


class Level(enum.IntEnum):
    """Members that are numbers."""

    HIGH = 2


class Loud(str):
    """Prints otherwise than it is."""

    def __str__(self) -> str:
        return f"<{id(self)}>"

    __repr__ = __format__ = __str__  # type: ignore[assignment]


class Named:
    """Says itself which one it is."""

    def __init__(self, name: object) -> None:
        self.name = name

    def __lock_name__(self) -> object:
        return self.name


class Shown(Named):
    """Has a text of its own, and does not say that this is its name."""

    __lock_name__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Shown({self.name!r})"


def pay(user: Any, amount: int = 1, *args: object, **options: object) -> object:
    """Pay."""
    return user, amount, args, options


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ("/users/{id}", "pay has no argument 'id'.* it has user, amount, args, options"),
        ("/users/}", "Single '}'"),
        ("/users/{0}", "name an argument"),
        ("/users/{user:{amount}}", "a field in the format"),
        ("/users/{user}{amount}", "two fields in one part"),
        ("users/{user}", "start with '/'"),
        ("/users/../{user}", "'..'"),
        ("/zookeeper/{user}", "reserved"),
    ],
)
def test_a_bad_template_is_refused(template: str, told: str) -> None:
    """Bad syntax, an unknown argument and a bad path are a ValueError when the function is decorated."""
    with pytest.raises(ValueError, match=told):
        synchronized(client, template)(pay)


@pytest.mark.parametrize(
    ("template", "arguments", "path"),
    [
        ("/pay", {}, "/pay"),
        ("/users/{user}", {"user": 7}, "/users/7"),
        ("/{user.real}/x{amount:03d}y/{{z}}", {"user": 7, "amount": 5}, "/7/x005y/{z}"),
        ("/{options[to]}/{args[0]}", {"options": {"to": "you"}, "args": ("a",)}, "/you/a"),
        ("/{user!r}", {"user": "a/b"}, "/'a%2Fb'"),
        ("/{user:%Y-%m-%d}", {"user": datetime.date(2030, 1, 2)}, "/2030-01-02"),
        ("/{user}", {"user": uuid.UUID(int=0)}, "/00000000-0000-0000-0000-000000000000"),
        ("/{user}", {"user": Color.RED}, "/Color.RED"),
        ("/{user}", {"user": Color.CRIMSON}, "/Color.RED"),
        ("/{user}", {"user": Level.HIGH}, "/2"),
        ("/{user}", {"user": Loud("a/b")}, "/a%2Fb"),
        ("/{user}", {"user": datetime.datetime(2030, 1, 2, 3, tzinfo=EAST)}, "/2030-01-02 01:00:00+00:00"),
        ("/{user}", {"user": decimal.Decimal("1.500")}, "/1.5"),
        ("/{user}", {"user": decimal.Decimal("1E+300")}, "/1E+300"),
        ("/{user}", {"user": Named("me")}, "/me"),
        ("/{user}", {"user": "x" * LONGEST_FIELD}, "/" + "x" * LONGEST_FIELD),
        ("/x/{user}", {"user": "/etc/../.."}, "/x/%2Fetc%2F..%2F.."),
        ("/x/{user}", {"user": ".."}, "/x/%2E%2E"),
        ("/x/{user}", {"user": "a%2Fb"}, "/x/a%252Fb"),
        ("/x/{user}", {"user": "\0"}, "/x/%00"),
        ("/x/{user}", {"user": "😀"}, "/x/%F0%9F%98%80"),
    ],
)
def test_a_path(template: str, arguments: dict[str, Any], path: str) -> None:
    """A field is its value's text, as `str.format` makes it, escaped to be one part of the path."""
    assert Template(template).path(arguments) == path


@pytest.mark.fault(64)
@pytest.mark.parametrize(
    "value",
    [
        None,
        object(),
        frozenset("a"),
        (1, 2),
        [],
        1.5,
        bytearray(b"a"),
        Path("/x"),
        lambda: 0,
        Named,
        Named(None),
        Named(Named("me")),
        Shown("me"),
        Mock(),
    ],
)
def test_a_value_without_a_text(value: object) -> None:
    """An argument whose text differs between processes is a TypeError when called, and nothing is locked or run."""
    ran = []
    for form in ("", "!r"):
        function = synchronized(client, f"/users/{{user{form}}}")(lambda user: ran.append(user))
        with pytest.raises(TypeError, match=rf"\{{user\}} of '/users/\{{user{form}\}}': a \w+ has no text"):
            function(value)
    assert not ran


@pytest.mark.fault(64)
@pytest.mark.parametrize(
    ("form", "value", "told"),
    [
        ("", datetime.datetime.min.replace(tzinfo=EAST), "out of range"),
        ("", decimal.Decimal("nan"), "NaN is no number"),
        (":n", 1000, "locale"),
        (":%B", datetime.date(2030, 1, 2), "locale"),
        (":d", "a", "Unknown format code"),
        ("", "", "is empty"),
        ("", "x" * (LONGEST_FIELD + 1), "too long in this call: 255 bytes"),
        ("", Named("x" * 1_000_000), "too long"),
        ("", "\u1234" * (LONGEST_FIELD // 3 + 1), "too long"),
    ],
)
def test_a_text_that_is_wrong(form: str, value: object, told: str) -> None:
    """A text that is empty, too long, no value's, or other in another process is a ValueError of a few lines."""
    with pytest.raises(ValueError, match=rf"\{{user\}} of '/\{{user.*({told})") as raised:
        synchronized(client, f"/{{user{form}}}")(pay)(value)
    assert len(str(raised.value)) < 300


SCALARS = st.one_of(
    TEXT,
    st.integers(),
    st.booleans(),
    st.binary(max_size=20),
    st.uuids(),
    st.dates(),
    st.datetimes(
        min_value=datetime.datetime(2, 1, 1),
        max_value=datetime.datetime(9998, 1, 1),
        timezones=st.none() | st.timezones(),
    ),
    st.decimals(allow_nan=False, allow_infinity=False),
)


@pytest.mark.fault(64)
@given(SCALARS)
def test_equal_values(value: Any) -> None:
    """A value, a copy of it in another process, and an equal one of its type give the same path."""
    template = Template("/{value}")
    path = template.path({"value": value})
    assert template.path({"value": pickle.loads(pickle.dumps(value))}) == path
    if isinstance(value, decimal.Decimal):
        with decimal.localcontext(decimal.Context(prec=2000, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX)):
            assert template.path({"value": value * decimal.Decimal("1.000")}) == path
            assert decimal.Decimal(path[1:]) == value
    if isinstance(value, datetime.datetime) and value.tzinfo:
        assert template.path({"value": value.astimezone(EAST)}) == path


@given(TEXT, TEXT)
@example(".", "%2E")
@example("/", "%2F")
@example("..", "%2E%2E")
@example("😀", "%F0%9F%98%80")
def test_an_escape(one: str, other: str) -> None:
    """Any text is one part of a path that ZooKeeper takes, below the base; two texts are two parts."""
    assert check_path(f"/base/{escape(one)}").count("/") == 2
    assert (escape(one) == escape(other)) == (one == other)


@given(st.tuples(TEXT, TEXT), st.tuples(TEXT, TEXT))
@example(("a/b", "c"), ("a", "b/c"))
@example(("ay/x", "c"), ("a", "x/yc"))
def test_different_values_are_different_paths(one: tuple[str, str], other: tuple[str, str]) -> None:
    """Two calls have one path only if all their values are the same."""
    template = Template("/x{a}y/x{b}")
    paths = [template.path({"a": a, "b": b}) for a, b in (one, other)]
    assert (paths[0] == paths[1]) == (one == other)


# -- what is decorated -----------------------------------------------------------------------------------------------

local = zkconcurrent.namespace("local")


async def coroutine(user: int) -> None:
    """Can't be."""


async def stream(user: int) -> AsyncIterator[int]:
    """Can't be."""
    yield user


class Async:
    """Is called as an `async def` is."""

    async def __call__(self, locked: Callable[[], bool]) -> bool:
        """Say whether a lock is held."""
        return locked()


ASYNC = [coroutine, stream, functools.partial(coroutine, 1), staticmethod(coroutine), Async()]
WRONG: list[tuple[Callable[[], Any], type[Exception], str]] = [
    *(
        (functools.partial(synchronized(local, "users"), function), TypeError, r"Use zkconcurrent\.aio\.synchronized")
        for function in ASYNC
    ),
    *(
        (functools.partial(synchronized(local, "users"), what), TypeError, "for functions and methods")
        for what in (int, 7)
    ),
    *(
        (functools.partial(decorator, wrong), TypeError, rf"^use @synchronized\(.* not @synchronized\({called}\)$")
        for wrong, called in ((pay, "function"), (client, "kazoo.client.KazooClient"))
        for decorator in (synchronized, zkconcurrent.aio.synchronized)
    ),
    (functools.partial(synchronized, None, "/users"), TypeError, "give a"),
    (functools.partial(synchronized, client, 7), TypeError, "template must be a str"),
    (functools.partial(synchronized, local, "/users"), ValueError, "relative"),
    (functools.partial(synchronized, local, "../{user}"), ValueError, "bad name"),
    (functools.partial(synchronized(local, "{user}")(lambda user: user), amount=1), TypeError, "amount|missing"),
    (synchronized(local, "{user}").__enter__, TypeError, "no arguments for user"),
]


@pytest.mark.fault(259)
@pytest.mark.parametrize(("use", "error", "told"), WRONG)
def test_a_wrong_use(use: Callable[[], Any], error: type[Exception], told: str) -> None:
    """It raises where the function is decorated, or else where it is called, and the error says how it is written."""
    with pytest.raises(error, match=told):
        use()


def test_async_in_disguise() -> None:
    """A function that turns out to return a coroutine is a TypeError when called: nothing of that has run."""

    @synchronized(local, "disguise")
    def function() -> Any:
        return coroutine(1)

    with pytest.raises(TypeError, match="async function"):
        function()
    assert not local.RLock("disguise")._is_owned()


def held(name: str) -> bool:
    """Return whether this thread holds the lock of that name."""
    return bool(local.RLock(name)._is_owned())  # type: ignore[attr-defined]


class Account:
    """Has methods of all kinds."""

    number = 7

    @synchronized(local, "methods/{self.number}/{amount}")
    def method(self, amount: int = 1) -> bool:
        """Pay from it."""
        return held(f"methods/{self.number}/{amount}")

    @synchronized(local, "classes/{cls.number}/{amount}")
    @classmethod
    def above(cls, amount: int = 1) -> bool:
        """Pay from all."""
        return held(f"classes/{cls.number}/{amount}")

    @classmethod
    @synchronized(local, "classes/{cls.number}/{amount}")
    def below(cls, amount: int = 1) -> bool:
        """Pay from all."""
        return held(f"classes/{cls.number}/{amount}")

    @synchronized(local, "statics/{amount}")
    @staticmethod
    def static(amount: int = 1) -> bool:
        """Pay."""
        return held(f"statics/{amount}")

    @staticmethod
    @synchronized(local, "statics/{amount}")
    def static_below(amount: int = 1) -> bool:
        """Pay."""
        return held(f"statics/{amount}")

    @property
    @synchronized(local, "property/{self.number}")
    def balance(self) -> bool:
        """The number left."""
        return held(f"property/{self.number}")


class Savings(Account):
    """Has them by inheritance."""

    number = 8


@pytest.mark.parametrize("kind", [Account, Savings])
def test_methods(kind: type[Account]) -> None:
    """Each kind of method, called in each way, holds the lock that its arguments name: defaults, `self`, `cls`."""
    account = kind()
    for call in (account.method, functools.partial(kind.method, account), account.above, kind.above, account.below):
        assert call()
        assert call(amount=2)
        assert call(3)
    for static in (kind.below, kind.static, account.static, kind.static_below, account.static_below):
        assert static(4)
        assert static()
    assert account.balance
    assert not held("methods/7/1")


@synchronized(local, "pickled/{n}")
def doubled(n: int) -> tuple[int, bool]:
    """Return what another process can check."""
    return 2 * n, held(f"pickled/{n}")


@pytest.mark.fault(65)
def test_pickled_by_name() -> None:
    """A decorated function is pickled by its qualified name, and so are methods of all kinds, as plain ones are."""
    account = Account()

    def again(what: Any) -> Any:
        return pickle.loads(pickle.dumps(what))

    assert again(doubled) is doubled
    assert copy.copy(doubled) is copy.deepcopy(doubled) is doubled
    assert again(Account.method)(account) is True
    for call in (account.method, account.above, Account.above, Savings.above, Savings.below, account.below):
        assert again(call)() is True
    for call in (Account.static, account.static, Account.static_below, account.static_below, Savings.static):
        assert again(call)(7) is True
    assert again(functools.partial(doubled, 4))() == (8, True)


@pytest.mark.fault(65)
def test_what_has_no_name_is_not_pickled() -> None:
    """A lambda, a local function, and one whose name is another's by now are refused when pickled, as plain ones."""

    class Local:
        @synchronized(local, "local")
        def method(self) -> None:
            pass

    replaced = synchronized(local, "pay")(pay)  # the name is the plain function's
    for what in (synchronized(local, "x")(lambda: 0), replaced, Local.method):
        with pytest.raises((pickle.PicklingError, AttributeError), match=r"pickle|not the same|find|found"):
            pickle.dumps(what)


def test_a_bound_method_and_a_partial() -> None:
    """A method that is bound already, a partial and a callable object are functions too."""
    account = Account()
    plain = types.MethodType(lambda self, amount: (self, held(f"bound/{self.number}/{amount}")), account)
    assert synchronized(local, "bound/{self.number}/{amount}")(plain)(5) == (account, True)
    assert synchronized(local, "partial/{amount}")(functools.partial(lambda _, amount: held(f"partial/{amount}"), 1))(
        amount=6
    )


def test_it_looks_as_before() -> None:
    """Name, signature, docstring and annotations stay; a decorated generator function is one still."""
    function = synchronized(client, "/users/{user}")(pay)
    assert function.__name__ == "pay"
    assert function.__doc__ == "Pay."
    assert inspect.signature(function) == inspect.signature(pay)
    assert function.__wrapped__ is pay  # type: ignore[attr-defined]
    assert list(inspect.signature(Account().method).parameters) == ["amount"]
    assert inspect.isgeneratorfunction(counting)


def test_the_result_and_the_error() -> None:
    """The result and any error pass, and the lock is free after either."""

    def fail(user: int) -> None:
        raise KeyError(user)

    assert synchronized(local, "a/{user}")(pay)(1, 2, 3, to=4) == (1, 2, (3,), {"to": 4})
    with pytest.raises(KeyError):
        synchronized(local, "a/{user}")(fail)(1)
    assert not held("a/1")


@synchronized(local, "generators/{name}")
def counting(name: str, n: int = 3) -> Generator[Any, Any, str]:
    """Count, and say whether the lock is held."""
    for _ in range(n):
        try:
            sent = yield held(f"generators/{name}")
        except KeyError as error:
            sent = error
        if sent is not None:
            yield sent
    return "end"


def test_generators() -> None:
    """A generator holds the lock from its first step to its last, also while it stands at a yield; not before."""
    running = counting("a")
    assert not held("generators/a")
    assert next(running) is True
    assert held("generators/a")
    assert running.send("sent") == "sent"
    assert next(running) is True
    assert isinstance(running.throw(KeyError("thrown")), KeyError)
    assert next(running) is True
    with pytest.raises(StopIteration) as stopped:
        next(running)
    assert stopped.value.value == "end"
    assert not held("generators/a")
    assert list(counting("a")) == [True] * 3


def test_generators_that_end_early() -> None:
    """A generator that is closed, dropped, or raises lets go of the lock."""
    running = counting("b")
    next(running)
    running.close()
    assert not held("generators/b")
    for _ in counting("b"):
        assert held("generators/b")
        break
    assert not held("generators/b")
    running = counting("b")
    next(running)
    with pytest.raises(ZeroDivisionError):
        running.throw(ZeroDivisionError())
    assert not held("generators/b")
    counting("b")  # never begun
    assert not held("generators/b")


def test_a_lock_that_is_there() -> None:
    """A lock of any kind is held as it is, by functions, generators and blocks; `wrapt.synchronized` takes ours too."""
    for lock in (threading.Lock(), local.Lock("there"), local.ReadWriteLock("pair").write_lock):
        locked = lock.locked
        for synchronize in (synchronized, wrapt.synchronized):
            assert synchronize(lock)(lambda call: call())(locked)
            with synchronize(lock):
                assert locked()
            assert not locked()
        assert list(synchronized(lock)(steps)(locked)) == [True]
        assert not locked()


def steps(locked: Callable[[], bool]) -> Iterator[bool]:
    """Say in a generator what a function says."""
    yield locked()


@pytest.mark.fault(337)
def test_a_function_says_where_each_block_is(in_thread: InThread) -> None:
    """Each end of a block releases the lock of that block, also if the next one has another client."""
    spaces = [zkconcurrent.namespace("local") for _ in range(3)]
    locks = [space.RLock("report") for space in spaces]
    places = iter(spaces)
    block = synchronized(lambda: next(places), "report")
    inside, ends = threading.Event(), threading.Event()

    def theirs() -> int:
        with block:
            inside.set()
            assert ends.wait(20)
        return locks[2].hold_count()

    with block:
        with block:
            assert [lock.hold_count() for lock in locks] == [1, 1, 0]
            other = in_thread(theirs)
            assert inside.wait(20)
        assert [lock.hold_count() for lock in locks] == [1, 0, 0]
    assert [lock.locked() for lock in locks] == [False, False, True]
    ends.set()
    assert other.result(20) == 0
    with pytest.raises(StopIteration), block:
        pass


@pytest.mark.fault(337)
def test_a_block_that_does_not_begin() -> None:
    """A block whose lock is not acquired leaves the block around it as it is."""
    space = zkconcurrent.namespace("local")
    places = iter([space, zkconcurrent.namespace(client)])
    block = synchronized(lambda: next(places), "report")
    with block:
        with pytest.raises(zkconcurrent.ClientError), block:
            pass
        assert space.RLock("report").hold_count() == 1
    assert not space.RLock("report").locked()
