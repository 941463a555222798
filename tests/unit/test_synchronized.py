"""Templates of paths are checked when a function is decorated, and no argument leads out of what they say."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import datetime
import decimal
import enum
import functools
import inspect
import multiprocessing
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


class Word(str, enum.Enum):
    """Members that are text."""

    HELLO = "hello"


class Access(enum.Flag):
    """Members that add up."""

    READ = 1
    WRITE = 2


class Loud(str):
    """Prints otherwise than it is."""

    def __str__(self) -> str:
        return f"<{id(self)}>"

    __repr__ = __format__ = __str__  # type: ignore[assignment]


class Count(int):
    """Prints otherwise than it is."""

    __str__ = __repr__ = Loud.__str__  # type: ignore[assignment]


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
        ("/users/{user", "expected '}'"),
        ("/users/}", "Single '}'"),
        ("/users/{}", "name an argument"),
        ("/users/{0}", "name an argument"),
        ("/users/{.id}", "name an argument"),
        ("/users/{user.}", "Empty attribute"),
        ("/users/{user[}", "expected|Missing"),
        ("/users/{user!x}", "conversion|Unknown"),
        ("/users/{user:{amount}}", "a field in the format"),
        ("/users/{user}{amount}", "two fields in one part"),
        ("/users/{user}-{amount}", "two fields in one part"),
        ("users/{user}", "start with '/'"),
        ("/users/{user}/", "at its end"),
        ("/users//{user}", "empty part"),
        ("/users/../{user}", "'..'"),
        ("/zookeeper/{user}", "reserved"),
        ("/", "root"),
        ("", "start with '/'"),
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
        ("/{user}", {"user": b"a"}, "/b'a'"),
        ("/{user.name}", {"user": Color.RED}, "/RED"),
        ("/{user}", {"user": Color.RED}, "/Color.RED"),
        ("/{user!r}", {"user": Color.RED}, "/'Color.RED'"),
        ("/{user}", {"user": Color.CRIMSON}, "/Color.RED"),
        ("/{user}", {"user": Level.HIGH}, "/2"),
        ("/{user:03d}", {"user": Level.HIGH}, "/002"),
        ("/{user}", {"user": Word.HELLO}, "/hello"),
        ("/{user}", {"user": Access.READ}, "/Access.READ"),
        ("/{user}", {"user": Access.READ | Access.WRITE}, "/Access.3"),
        ("/{user}", {"user": True}, "/True"),
        ("/{user:d}", {"user": True}, "/1"),
        ("/{user}", {"user": -1}, "/-1"),
        ("/{user}", {"user": Loud("a/b")}, "/a%2Fb"),
        ("/{user!s:>4}", {"user": Loud("ab")}, "/  ab"),
        ("/{user}", {"user": Count(5)}, "/5"),
        ("/{user}", {"user": datetime.date(2030, 1, 2)}, "/2030-01-02"),
        ("/{user}", {"user": datetime.datetime(2030, 1, 2, 3, 4)}, "/2030-01-02 03:04:00"),
        ("/{user}", {"user": datetime.datetime(2030, 1, 2, 3, tzinfo=EAST)}, "/2030-01-02 01:00:00+00:00"),
        ("/{user:%d %H}", {"user": datetime.datetime(2030, 1, 2, 1, tzinfo=EAST)}, "/01 23"),
        ("/{user}", {"user": decimal.Decimal("1.500")}, "/1.5"),
        ("/{user}", {"user": decimal.Decimal("1E+2")}, "/100"),
        ("/{user}", {"user": decimal.Decimal("1E+300")}, "/1E+300"),
        ("/{user:.2f}", {"user": decimal.Decimal("-2.5")}, "/-2.50"),
        ("/{user}", {"user": Named("me")}, "/me"),
        ("/{user:03d}", {"user": Named(7)}, "/007"),
        ("/{user!r}", {"user": Named("me")}, "/'me'"),
        ("/{user}", {"user": "x" * LONGEST_FIELD}, "/" + "x" * LONGEST_FIELD),
        ("/x/{user}", {"user": "/etc/../.."}, "/x/%2Fetc%2F..%2F.."),
        ("/x/{user}", {"user": ".."}, "/x/%2E%2E"),
        ("/x/.{user}", {"user": "."}, "/x/.%2E"),
        ("/x/{user}", {"user": "a%2Fb"}, "/x/a%252Fb"),
        ("/x/{user}", {"user": "\0"}, "/x/%00"),
        ("/x/{user}", {"user": "löck"}, "/x/löck"),
        ("/x/{user}", {"user": "😀"}, "/x/%F0%9F%98%80"),
    ],
)
def test_a_path(template: str, arguments: dict[str, Any], path: str) -> None:
    """A field is its value's text, as `str.format` makes it, escaped to be one part of the path."""
    assert Template(template).path(arguments) == path


@dataclasses.dataclass
class Data:
    """Its text is made of its parts'."""

    part: object


@pytest.mark.fault(64)
@pytest.mark.parametrize(
    "value",
    [
        None,
        object(),
        set(),
        frozenset("a"),
        Data(7),
        Data(object()),
        [object()],
        (1, 2),
        {"a": 1},
        [],
        1.5,
        float("nan"),
        bytearray(b"a"),
        Path("/x"),
        int,
        threading.Lock(),
        lambda: 0,
        Named,
        Named(None),
        Named([1]),
        Named(Named("me")),
        Shown("me"),
        Mock(),
        wrapt.ObjectProxy("me"),
    ],
)
def test_a_value_without_a_text(value: object) -> None:
    """An argument whose text differs between processes is a TypeError when called, and nothing is locked or run."""
    ran = []
    for form in ("", "!r", "!s", "!a"):
        function = synchronized(client, f"/users/{{user{form}}}")(lambda user: ran.append(user))
        with pytest.raises(TypeError, match=rf"\{{user\}} of '/users/\{{user{form}\}}': a \w+ has no text"):
            function(value)
    assert not ran


def test_a_name_that_fails() -> None:
    """An error that a `__lock_name__` raises passes as it is."""

    class Broken(Named):
        def __lock_name__(self) -> object:
            return b"\xff".decode()

    with pytest.raises(UnicodeDecodeError):
        Template("/{user}").path({"user": Broken("me")})


@pytest.mark.fault(64)
@pytest.mark.parametrize(
    ("form", "value", "told"),
    [
        ("", datetime.datetime.min.replace(tzinfo=EAST), "out of range"),
        ("", decimal.Decimal("nan"), "NaN is no number"),
        ("", decimal.Decimal("-inf"), "-Infinity is no number"),
        (":n", 1000, "locale"),
        (":n", decimal.Decimal(1), "locale"),
        (":%B", datetime.date(2030, 1, 2), "locale"),
        (":%-c", datetime.datetime(2030, 1, 2), "locale"),
        (":d", "a", "Unknown format code"),
        ("", "", "is empty"),
        ("", "x" * (LONGEST_FIELD + 1), "too long in this call: 255 bytes"),
        ("", Named("x" * 1_000_000), "too long"),
        ("", "/" * (LONGEST_FIELD // 3 + 1), "too long"),
        ("", "\u1234" * (LONGEST_FIELD // 3 + 1), "too long"),
        (":0300d", 1, "too long"),
        ("", Named(10**5000), "limit|too long"),
        ("", Named("x" * 1000), "too long"),
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


@given(st.decimals(allow_nan=False, allow_infinity=False), st.decimals(allow_nan=False, allow_infinity=False))
@example(decimal.Decimal("-0"), decimal.Decimal("0.00"))
@example(decimal.Decimal("100"), decimal.Decimal("1E+2"))
def test_decimals(one: decimal.Decimal, other: decimal.Decimal) -> None:
    """Two Decimals give one path exactly if they are equal."""
    paths = [Template("/{value}").path({"value": each}) for each in (one, other)]
    assert (paths[0] == paths[1]) == (one == other)


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
        (functools.partial(synchronized(*where), function), TypeError, r"Use zkconcurrent\.aio\.synchronized")
        for where in ((client, "/users"), (local, "users"), (threading.Lock(),))
        for function in ASYNC
    ),
    *(
        (functools.partial(synchronized(local, "users"), what), TypeError, "for functions and methods")
        for what in (int, type("User", (), {}), 7, None)
    ),
    *(
        (functools.partial(decorator, wrong), TypeError, rf"^use @synchronized\(.* not @synchronized\({called}\)$")
        for wrong, called in ((pay, "function"), ("/path", "str"), (client, "kazoo.client.KazooClient"))
        for decorator in (synchronized, zkconcurrent.aio.synchronized)
    ),
    *((functools.partial(synchronized, where, "/users"), TypeError, "give a") for where in (None, 7, "local")),
    *((functools.partial(synchronized, where), TypeError, "^use @synchronized") for where in (None, 7, "local")),
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


@pytest.mark.fault(259)
def test_an_object_with_an_async_call() -> None:
    """`aio.synchronized`, which the error names, takes it: the lock is held while the call runs."""
    lock = asyncio.Lock()
    assert asyncio.run(zkconcurrent.aio.synchronized(lock)(Async())(lock.locked))
    assert not lock.locked()


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


def run_it(function: Callable[[], Any]) -> Any:
    """Call what came from another process."""
    return function()


@pytest.mark.fault(65)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickled_by_name(protocol: int) -> None:
    """A decorated function is pickled by its qualified name, and so are methods of all kinds, as plain ones are."""
    account = Account()

    def again(what: Any) -> Any:
        return pickle.loads(pickle.dumps(what, protocol))

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


@pytest.mark.fault(65)
@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_pool(method: str) -> None:
    """`Pool.map` runs a decorated function, and methods, in processes that were spawned or forked."""
    account = Account()
    with multiprocessing.get_context(method).Pool(1) as pool:
        assert pool.map(doubled, [1, 2]) == [(2, True), (4, True)]
        assert pool.map(run_it, [account.method, Account.above, Savings.below, Account.static]) == [True] * 4


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


def test_a_generator_of_another_thread(in_thread: InThread) -> None:
    """A generator that ends in another thread than it began in lets go of the lock there; a release is refused."""
    running = counting("c", 1)
    next(running)
    with pytest.raises(RuntimeError, match="un-acquired"):
        in_thread(local.RLock("generators/c").release).result(20)
    assert held("generators/c")
    with pytest.raises(StopIteration):
        in_thread(next, running).result(20)
    assert not held("generators/c")


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
