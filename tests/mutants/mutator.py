"""Mutants: small changes of the library, each of one place of one function, made from the syntax tree.

An operator finds the places that it can change, and changes one of them in the tree of its module. So a mutant needs no
text of the code, and follows the code as it changes. It is known by its function, its operator, and what stands at the
place.
"""

from __future__ import annotations

import ast
import gc
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import zkconcurrent

PACKAGE = Path(zkconcurrent.__file__).parent
# The recipes, what they share, and the parts of the engine that decide who holds, who waits, and what is deleted.
ENGINE = (
    *("call", "connection_listener", "deletes", "expired_holds", "heartbeat", "holds", "keeper_thread"),
    *("local_handoff", "loss_signal", "operation_runner", "patience", "operation_requests", "session"),
    *("ticket_registry", "watch_removals"),
)
# An operator's mark can be read in a table that has room for so many letters of the place.
WIDTH = 70
# Operations that change something, or that a change depends on; and a `Multi`'s own.
WRITES = {"Check", "Container", "Create", "CreateEphemeral", "CreatePersistent", "CreateTogether", "Delete", "SetNode"}
# Calls that decide nothing: what they would write, tests of the logs and metrics show.
TELLS = {"debug", "info", "warning", "warn", "warn_later", "emit", "note_loss", "note", "observe", "record"}


class Slot(NamedTuple):
    """Where a node stands in the tree.

    Attributes:
        node: what stands there.
        put: puts another node there.
        line: the line of the statement that it belongs to.
    """

    node: ast.AST
    put: Callable[[Any], None]
    line: int


class Place(NamedTuple):
    """A place that an operator can change.

    Attributes:
        operator: its name.
        text: what stands there.
        line: the line of the statement that must be reached for the change to matter.
        change: changes the tree.
    """

    operator: str
    text: str
    line: int
    change: Callable[[], None]


class Mutant(NamedTuple):
    """A mutant, by what is changed."""

    module: str
    function: str
    operator: str
    text: str
    number: int
    line: int

    @property
    def where(self) -> str:
        """The function, from its module on."""
        return f"{self.module}:{self.function}"

    @property
    def id(self) -> str:
        """The mutant's name, which stays the same while its place does."""
        return f"{self.where} {self.operator}: {self.text}" + (f" #{self.number}" if self.number > 1 else "")


# -- the operators ---------------------------------------------------------------------------------------------------


def _generator_still() -> ast.expr:
    """Return an expression that yields never, and whose function is a generator, though it should be the only one."""
    return ast.IfExp(ast.Constant(False), ast.Yield(None), ast.Constant(None))


def _never(test: ast.expr) -> ast.expr:
    return ast.BoolOp(ast.And(), [test, ast.Constant(False)])


def _called(node: ast.AST) -> str:
    """Return the name of what is called, without that of its object."""
    function = node.func if isinstance(node, ast.Call) else None
    return getattr(function, "attr", "") or getattr(function, "id", "")


def _drop_yield(slot: Slot) -> Iterator[tuple[ast.AST, Callable[[], None]]]:
    """Drop an operation: it is not performed, and its result is None."""
    node = slot.node
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Yield | ast.YieldFrom):
        if not (isinstance(node.value, ast.Yield) and node.value.value is None):
            yield node, lambda: slot.put(ast.Expr(_generator_still()))
    elif isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(yields := node.value, ast.Yield):
        alone = isinstance(node, ast.AnnAssign) or isinstance(node.targets[0], ast.Name)
        # Without a ticket nothing works.
        if alone and yields.value is not None and _called(yields.value) != "NewTicket":
            yield node, lambda: setattr(node, "value", _generator_still())


def _drop_sync(slot: Slot) -> Iterator[tuple[ast.AST, Callable[[], None]]]:
    """Drop the `Sync` before reads that are sent with it."""
    node = slot.node
    if isinstance(node, ast.Yield) and isinstance(sent := node.value, ast.Tuple) and _called(sent.elts[0]) == "Sync":
        rest = ast.Starred(ast.Yield(ast.Tuple(sent.elts[1:], ast.Load())), ast.Load())
        yield sent.elts[0], lambda: slot.put(ast.Tuple([ast.Constant(None), rest], ast.Load()))


def _is_part(node: ast.expr) -> bool:
    return _called(node) in WRITES or isinstance(node, ast.Starred | ast.Name | ast.IfExp | ast.BoolOp)


def _parts(slot: Slot) -> Sequence[ast.expr]:
    """Return the parts of a `Multi`, where they are written down; none, where they are not."""
    node = slot.node
    if not isinstance(node, ast.Tuple | ast.List) or not isinstance(node.ctx, ast.Load):
        return ()
    written = any(_called(each) in WRITES for each in node.elts) and all(map(_is_part, node.elts))
    return node.elts if written else ()


def _drop_part(slot: Slot) -> Iterator[tuple[ast.AST, Callable[[], None]]]:
    """Drop one part of a `Multi`."""
    parts = _parts(slot)
    for n, part in enumerate(parts):
        yield part, lambda n=n: slot.put(ast.Tuple([*parts[:n], *parts[n + 1 :]], ast.Load()))  # type: ignore[misc]


def _swap_parts(slot: Slot) -> Iterator[tuple[ast.AST, Callable[[], None]]]:
    """Swap two parts of a `Multi`."""
    parts = _parts(slot)
    for n in range(1, len(parts)):
        swapped = ast.Tuple([*parts[: n - 1], parts[n], parts[n - 1], *parts[n + 1 :]], ast.Load())
        yield ast.Tuple([parts[n - 1], parts[n]], ast.Load()), lambda swapped=swapped: slot.put(swapped)  # type: ignore[misc]


def _negate_test(slot: Slot) -> Iterator[tuple[ast.AST, Callable[[], None]]]:
    """Do the one thing in place of the other."""
    node = slot.node
    if isinstance(node, ast.If | ast.While | ast.IfExp) and not isinstance(node.test, ast.Constant):
        yield node.test, lambda: setattr(node, "test", ast.UnaryOp(ast.Not(), node.test))
    elif isinstance(node, ast.comprehension):
        for n, test in enumerate(node.ifs):
            yield test, lambda n=n, test=test: node.ifs.__setitem__(n, ast.UnaryOp(ast.Not(), test))  # type: ignore[misc]


def _drop_check(slot: Slot) -> Iterator[tuple[ast.AST, Callable[[], None]]]:
    """Never leave by a check: what it tests is tested, and nothing comes of it."""
    node = slot.node
    leaves = ast.Raise | ast.Return | ast.Continue | ast.Break
    if isinstance(node, ast.If) and not node.orelse and isinstance(node.body[-1], leaves):
        yield node.test, lambda: setattr(node, "test", _never(node.test))


_OFF = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}


def _off_by_one(slot: Slot) -> Iterator[tuple[ast.AST, Callable[[], None]]]:
    """Shift a bound by one: of a comparison, or a number."""
    node = slot.node
    if isinstance(node, ast.Compare):
        for n, operator in enumerate(node.ops):
            if type(operator) in _OFF:
                yield node, lambda n=n, operator=operator: node.ops.__setitem__(n, _OFF[type(operator)]())  # type: ignore[misc]
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        yield node, lambda: slot.put(ast.Constant(node.value + 1))


def _and_or(slot: Slot) -> Iterator[tuple[ast.AST, Callable[[], None]]]:
    """Ask for either in place of both, or for both in place of either."""
    node = slot.node
    if isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield node, lambda: setattr(node, "op", other)


def _drop_call(slot: Slot) -> Iterator[tuple[ast.AST, Callable[[], None]]]:
    """Drop a statement that calls something for its effect."""
    node = slot.node
    calls = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and _called(node.value) not in TELLS
    if calls and "super()" not in ast.unparse(node):
        yield node, lambda: slot.put(ast.Pass())


def _drop_set(slot: Slot) -> Iterator[tuple[ast.AST, Callable[[], None]]]:
    """Drop a statement that changes an object."""
    node = slot.node
    targets = node.targets if isinstance(node, ast.Assign | ast.Delete) else []
    sets = isinstance(node, ast.AugAssign) or any(isinstance(each, ast.Attribute | ast.Subscript) for each in targets)
    if sets and not any(isinstance(each, ast.Yield | ast.YieldFrom | ast.NamedExpr) for each in ast.walk(node)):
        yield node, lambda: slot.put(ast.Pass())


def _drop_except(slot: Slot) -> Iterator[tuple[ast.AST, Callable[[], None]]]:
    """Catch no error."""
    node = slot.node
    if isinstance(node, ast.ExceptHandler) and not isinstance(node.body[0], ast.Raise):
        caught = ast.Name("except" if node.type is None else f"except {ast.unparse(node.type)}", ast.Load())
        keep = [ast.Expr(_generator_still())] * any(isinstance(each, ast.Yield) for each in ast.walk(node))
        yield caught, lambda: setattr(node, "body", [ast.Raise(None, None), *keep])


OPERATORS: dict[str, Callable[[Slot], Iterator[tuple[ast.AST, Callable[[], None]]]]] = {
    "drop-yield": _drop_yield,
    "drop-sync": _drop_sync,
    "drop-part": _drop_part,
    "swap-parts": _swap_parts,
    "negate-test": _negate_test,
    "drop-check": _drop_check,
    "off-by-one": _off_by_one,
    "and-or": _and_or,
    "drop-call": _drop_call,
    "drop-set": _drop_set,
    "drop-except": _drop_except,
}


# -- where they apply ------------------------------------------------------------------------------------------------


def _slots(node: ast.AST, line: int) -> Iterator[Slot]:
    """Yield all places of a tree below a node, but for annotations, defaults and decorators."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "defaults", "kw_defaults", "msg"):
            continue
        # An index that is a number stands for a part of what is always the same.
        if field == "slice" and isinstance(value, ast.Constant | ast.UnaryOp):
            continue
        for n, each in enumerate(value if isinstance(value, list) else [value]):
            if not isinstance(each, ast.AST) or isinstance(each, ast.JoinedStr):
                continue
            here = each.lineno if isinstance(each, ast.stmt) else line
            if isinstance(each, ast.ExceptHandler):
                here = each.body[0].lineno
            if isinstance(value, list):
                yield Slot(each, lambda new, value=value, n=n: value.__setitem__(n, new), here)  # type: ignore[misc]
            else:
                yield Slot(each, lambda new, node=node, field=field: setattr(node, field, new), here)  # type: ignore[misc]
            yield from _slots(each, here)


def _raises(tree: ast.AST) -> set[ast.AST]:
    """Return what only computes an error's text."""
    return {each for node in ast.walk(tree) if isinstance(node, ast.Raise) for each in ast.walk(node)}


def places(function: ast.AST) -> Iterator[Place]:
    """Yield all places of a function that an operator can change, in their order."""
    errors = _raises(function)
    for slot in _slots(function, getattr(function, "lineno", 0)):
        if slot.node in errors:
            continue
        for name, operator in OPERATORS.items():
            for shown, change in operator(slot):
                text = " ".join(ast.unparse(ast.fix_missing_locations(shown)).split())
                yield Place(name, text if len(text) <= WIDTH else f"{text[: WIDTH - 2]}..", slot.line, change)


def functions(tree: ast.AST, outer: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield the functions of a module and the methods of its classes; one inside another is a part of that."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from functions(node, f"{outer}{node.name}.")
        elif isinstance(node, ast.FunctionDef) and node.name not in ("__repr__", "__str__"):
            yield outer + node.name, node


def path_of(module: str) -> Path:
    """Return the file of a module of the package."""
    path = PACKAGE.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def modules() -> list[str]:
    """Return the modules that mutants are made of."""
    files = [path for folder in ("_recipes", "_protocol") for path in sorted((PACKAGE / folder).rglob("*.py"))]
    files += [*(PACKAGE / "_engine" / f"{name}.py" for name in ENGINE), PACKAGE / "_observe" / "hold_limits.py"]
    return [".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__") for path in files]


def mutants_of(module: str) -> list[Mutant]:
    """Return all mutants of a module, in the order of their places."""
    found: list[Mutant] = []
    for name, function in functions(ast.parse(path_of(module).read_text())):
        seen: Counter[tuple[str, str]] = Counter()
        for place in places(function):
            if name.endswith("__init__") and place.operator == "drop-set":
                continue  # what an object is made with is missed at its first use
            seen[place.operator, place.text] += 1
            number = seen[place.operator, place.text]
            found.append(Mutant(module, name, place.operator, place.text, number, place.line))
    return found


def changed(mutant: Mutant) -> ast.Module:
    """Return the tree of a mutant's module, with its one change."""
    tree = ast.parse(path_of(mutant.module).read_text())
    function = next(function for name, function in functions(tree) if name == mutant.function)
    same = [place for place in places(function) if (place.operator, place.text) == (mutant.operator, mutant.text)]
    same[mutant.number - 1].change()
    return ast.fix_missing_locations(tree)


def sample(number: int, seed: str = "47") -> list[Mutant]:
    """Return so many mutants, spread over all functions; a change of a function moves few of the others'.

    A function with n places gives as many as the root of n, compared with the others.
    """
    by_function: dict[str, dict[str, list[tuple[str, Mutant]]]] = {}
    for mutant in (mutant for module in modules() for mutant in mutants_of(module)):
        drawn = sha256(f"{seed} {mutant.id}".encode()).hexdigest()
        by_function.setdefault(mutant.where, {}).setdefault(mutant.operator, []).append((drawn, mutant))
    order: list[tuple[float, str, Mutant]] = []
    for by_operator in by_function.values():
        # Each operator's first, then each one's second: tests to negate are as many as all else.
        turns = sorted((turn, *each) for some in by_operator.values() for turn, each in enumerate(sorted(some)))
        for rank, (_, drawn, mutant) in enumerate(turns):
            order.append(((rank + int(drawn[:4], 16) / 0x10000) / len(turns) ** 0.5, drawn, mutant))
    return [mutant for *_, mutant in sorted(order)[:number]]


# -- putting them in place -------------------------------------------------------------------------------------------


@cache
def _known() -> dict[tuple[str, int, str], list[FunctionType]]:
    """Return all functions of the package that there are, by where they are defined."""
    for module in modules():
        import_module(f"zkconcurrent.{module}")
    found: dict[tuple[str, int, str], list[FunctionType]] = {}
    frozen = gc.get_freeze_count()
    gc.unfreeze()
    objects = gc.get_objects()
    if frozen:
        gc.freeze()
    for each in objects:
        if isinstance(each, FunctionType) and each.__module__ and each.__module__.startswith("zkconcurrent."):
            code = each.__code__
            found.setdefault((code.co_filename, code.co_firstlineno, code.co_name), []).append(each)
    return found


def _codes(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from _codes(each)


def changes(module: str, tree: ast.Module, only: str | None = None) -> list[tuple[FunctionType, CodeType]]:
    """Return the functions of a module, wherever they are known, with the code that they have in another tree.

    Args:
        module: the module.
        tree: the tree, whose functions stand where they stood.
        only: the name of the one function to change.
    """
    path = str(path_of(module))
    codes = {(each.co_firstlineno, each.co_name): each for each in _codes(compile(tree, path, "exec"))}
    found: list[tuple[FunctionType, CodeType]] = []
    for name, function in functions(tree):
        if only in (None, name):
            line = min(each.lineno for each in (function, *function.decorator_list))
            key = path, line, function.name
            found += ((known, codes[line, function.name]) for known in _known().get(key, ()))
    return found


@contextmanager
def seeded(mutant: Mutant) -> Iterator[None]:
    """Have the library be a mutant while the block runs.

    Raises:
        LookupError: the mutant's function is nowhere, so nothing would change.
    """
    found = changes(mutant.module, changed(mutant), mutant.function)
    if not found:
        raise LookupError(mutant.id)
    originals = [(function, function.__code__) for function, _ in found]
    for function, code in found:
        function.__code__ = code
    try:
        yield
    finally:
        for function, code in originals:
            function.__code__ = code


def named(name: str) -> Mutant:
    """Return a mutant by its name, or by as much of it as the first one has: its function and operator, say.

    Raises:
        LookupError: there is none.
    """
    found = [each for each in mutants_of(name.partition(":")[0]) if each.id.startswith(name)]
    if not found:
        raise LookupError(name)
    return found[0]
