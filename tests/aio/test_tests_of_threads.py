"""The tests of threads in `tests/integration`, from the same text, with a task of `aio` for each of their threads.

`LEFT_OUT` names each test that is not run, with the reason; `test_the_object_itself`, of its repr, is in no file.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import zkconcurrent
from tests.helpers import lock_types, on_tasks
from tests.helpers.homes import HOMES
from zkconcurrent import aio

KINDS = {
    lock_types.Lock: on_tasks.Lock,
    lock_types.RLock: on_tasks.RLock,
    lock_types.read_lock: on_tasks.ReadLock,
    lock_types.write_lock: on_tasks.WriteLock,
    lock_types.unfair_lock: on_tasks.unfair_lock,
    lock_types.unfair_rlock: on_tasks.unfair_rlock,
    zkconcurrent.Semaphore: on_tasks.Semaphore,
    zkconcurrent.BoundedSemaphore: on_tasks.BoundedSemaphore,
    zkconcurrent.MultiLock: on_tasks.MultiLock,
}
ADDRESS = "has the address of the object in its repr"
NUMBERS = "is about threads that have each other's number; a task is known by itself"
LATE = "expects that release() waits for the reply; a task's release() returns before"
BY_LOOP = "has objects that never acquired call on_lost; a task's is called on the loop that acquired by that object"
HALFWAY = "patches the methods of threads' locks, to stand halfway through a call"
IDENTITY = "compares the identity of objects, which the helper wraps anew for each query"
PROCESSES = "is about other processes, which have threads"
STANDARD = "threading's condition takes no lock of tasks"
SIGNALS = "interrupts the thread that calls; a task is cancelled instead"
PROCESSES = "is about other processes, which use threads"
STOPS = "expects what Python makes another error of in each coroutine"
TURN = "looks at the turn of threads"
BLOCKS = "takes a lock of threads, which blocks the loop"
KAZOOS = "calls on kazoo's own threads, where no task runs"
OTHERS = "is about processes of their own"
CANCELS = "ends its body as a thread does; a loss cancels a task: tests/aio/test_hold.py"
WAITS = "waits on a condition, which is of threads here: tests/aio/test_hold.py"
LEFT_OUT: dict[str, dict[str, str]] = {
    "test_locks": {
        "test_threadings_condition_takes_an_rlock": STANDARD,
        "test_called_on_kazoos_own_threads": KAZOOS,
        "test_no_timeout": "is about None, which waits forever in asyncio",
        "test_a_level_of_a_programs_own_class": "derives from the class of threads",
    },
    "test_losses": {
        "test_a_loss_is_told_and_settled": BY_LOOP,
        "test_a_callback_that_fails_or_blocks_harms_nobody": BY_LOOP,
        "test_a_loss_ends_with_its_thread": NUMBERS,
        "test_a_lost_permit_ends_with_its_thread": NUMBERS,
        "test_a_hold_is_not_inherited": NUMBERS,
        "test_a_newer_hold_is_untouched_by_other_threads": "has blocks in generators; the next test is of tasks",
        "test_the_holders_node_was_deleted_and_another_holds": LATE,
        "test_the_holders_node_was_deleted_and_nobody_holds": LATE,
        "test_the_holders_node_was_deleted_and_the_server_is_busy": LATE,
        "test_locks_of_a_programs_class_that_are_equal": "derives from the class of threads",
        "test_many_nodes_are_deleted_at_once": "is about the session, and takes long",
        "test_many_losses_on_a_busy_machine": "so does this",
        "test_an_exit_just_after_the_client_was_stopped": "is about the session",
        "test_a_standard_condition_whose_lock_is_lost": STANDARD,
    },
    "test_revocation": {
        "test_an_on_revoke_that_fails": "has the helper's thread call on_revoke",
        "test_a_holder_is_asked": BY_LOOP.replace("on_lost", "on_revoke"),
        "test_a_request_before_the_watch": BY_LOOP.replace("on_lost", "on_revoke"),
        "test_a_request_between_two_threads": "holds up one thread of two, and tasks have one",
    },
    "test_event": {
        "test_the_old_name": "asyncio's event has no isSet()",
    },
    "test_election": {
        "test_an_interrupt_while_the_thread_starts": SIGNALS,
        "test_interrupts_at_the_end_of_a_block": SIGNALS,
        "test_a_handler_that_stands": SIGNALS,
        "test_a_finalizer_that_withdraws": "calls on the candidacy's thread, where no task runs",
        "test_the_leader_is_killed": OTHERS,
    },
    "test_atomic": {
        "test_every_change": ADDRESS,
        "test_what_is_no_numbers": ADDRESS,
        "test_an_interrupted_change": SIGNALS,
        "test_a_function_that_waits_for_another_change": BLOCKS,
        "test_a_signal_handler_does_not_queue": SIGNALS,
        "test_a_change_made_by_another_thread_meanwhile": "stops the thread that calls, where no task does",
        "test_a_late_read_undoes_no_change": "so does this",
        "test_a_signal_handler_at_every_line": SIGNALS,
        "test_a_finalizer_on_the_settling_thread": SIGNALS,
        "test_a_function_that_fails": SIGNALS,
        "test_a_function_that_raises_stop_iteration": STOPS,
        "test_the_client_is_stopped": TURN,
        "test_many_processes": PROCESSES,
        "test_a_process_that_is_killed": PROCESSES,
    },
    "test_shared_value": {
        "test_every_change": IDENTITY,
        "test_watch": "iterates; a task iterates with `async for`",
        "test_a_codec_that_takes_a_lock_of_the_caller": BLOCKS,
        "test_values_whose_comparison_calls_back": STOPS,
    },
    "test_hold": {
        "test_lost": CANCELS,
        "test_a_forked_child": "forks where the loop's thread is not",
        "test_an_interrupt": "interrupts the thread that waits for its task, not the task",
    },
    "test_cancel_waits": {
        "test_threadings_condition_keeps_its_lock": STANDARD,
        "test_synchronized": "is about the decorator of functions",
        "test_in_a_signal_handler": "interrupts the thread that waits for its task, not the task",
        "test_a_handler_that_raises_too": SIGNALS,
        "test_a_handler_that_raises_between_two_sleeps": SIGNALS,
        "test_during_the_clean_up_of_an_interrupt": SIGNALS,
        "test_a_forked_child": "forks where the loop's thread is not",
    },
    "test_double_barrier": {
        "test_in_and_out_together": "calls leave() on other threads, and so on other tasks",
        "test_an_interrupted_wait": SIGNALS,
        "test_a_signal_handler_enters": SIGNALS,
        "test_a_leave_interrupted_twice": SIGNALS,
        **dict.fromkeys(("test_processes", "test_a_killed_party_has_left", "test_all_have_died"), PROCESSES),
    },
    "test_condition": {
        "test_interrupts_in_a_row_as_a_wait_ends": SIGNALS,
        "test_an_interrupt_after_a_wait_could_not_acquire": SIGNALS,
        "test_an_interrupt_as_a_wait_acquires_leaves_no_cycle": SIGNALS,
        "test_all_are_woken": "also calls notifyAll(), which asyncio's condition has not",
        "test_two_releases_of_one_hold": HALFWAY,
        "test_which_locks_a_condition_takes": "has the text of an error, which names aio here",
        "test_threadings_own_condition": STANDARD,
    },
    "test_rwlock": {"test_both_holds_are_lost_and_settled": BY_LOOP},
    "test_multilock": {
        "test_interrupts_in_a_row_within_a_release": HALFWAY,
        "test_a_loss_that_two_sessions_tell_at_once": HALFWAY,
        "test_an_error_that_does_not_end": HALFWAY,
        "test_what_it_is_made_of": IDENTITY,
        "test_a_loss_is_told": IDENTITY,
        "test_what_is_told_is_not_kept": IDENTITY,
        "test_all_or_none_with_errors": HALFWAY,
        "test_an_alarm_strikes_a_release": SIGNALS,
        "test_in_a_handler_on_top_of_another_acquire": SIGNALS,
        "test_what_was_handed_on_is_the_next_threads": HALFWAY,
        "test_a_loss_that_a_release_finds": LATE,
        "test_a_loss_after_a_wait_of_a_condition": WAITS,
        "test_a_loss_by_the_clock_that_a_release_finds": "keeps the session's lock, which the loop needs",
    },
    "test_detached": {
        "test_a_killed_holder": PROCESSES,
        "test_a_forked_child": "forks where the loop's thread is not",
        "test_an_interrupted_release": "interrupts the thread that waits for its task, not the task",
        "test_what_it_refuses": IDENTITY,
    },
    "test_semaphore": {
        "test_many_permits_of_a_thread_with_a_long_name": "names the thread that calls; tasks run on another one",
        "test_a_listing_that_is_refused_alone": "has the requests of a thread stand still, and so its loop",
        "test_more_permits_than_there_are": "looks for the line of the caller, which here is of the helper",
        "test_a_try_in_a_signal_handler": "interrupts the thread that waits for its task, not the task",
    },
}


def against(kind: Any) -> Any:
    """Return the kind of lock that keeps `kind` out while it is held, and the other way round."""
    return on_tasks.WriteLock if kind is on_tasks.ReadLock else kind


def name_of(module: ModuleType) -> str:
    """Return the name of a file of tests."""
    return module.__name__.rpartition(".")[2]


def generic(module: ModuleType) -> type:
    """Return a class of the module's tests, in which its names stand for those of `aio`."""
    names = {name: kind for name, kind in vars(on_tasks).items() if isinstance(kind, type) and name in aio.__all__}
    names |= {"read_lock": on_tasks.ReadLock, "write_lock": on_tasks.WriteLock, "against": against}
    names |= {"unfair_lock": on_tasks.unfair_lock}
    assert names.keys() & vars(module).keys(), f"on_tasks.py has no twin for {module.__name__}, which would use threads"

    def _ours(self: object, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001
        for name in names.keys() & vars(module).keys():
            monkeypatch.setattr(module, name, names[name])

    members: dict[str, Any] = {"_ours": pytest.fixture(autouse=True)(_ours)}
    left_out = {"test_the_object_itself"} | LEFT_OUT.get(name_of(module), {}).keys()
    for name, test in vars(module).items():
        if name.startswith("test_") and name not in left_out:
            members[name] = staticmethod(on_ours(test))
    return type("Test" + name_of(module).removeprefix("test_").title().replace("_", ""), (), members)


def on_ours(test: Callable[..., None]) -> Callable[..., None]:
    """Return the test, which is given our kinds of lock."""

    @functools.wraps(test)
    def run(**fixtures: Any) -> None:
        if "kind" in fixtures:
            fixtures["kind"] = KINDS.get(fixtures["kind"], fixtures["kind"])
        test(**fixtures)

    return run


INTEGRATION = Path(__file__).parents[1] / "integration"
# A primitive's tests are in the file of the same name as its module; the others are of several primitives.
FILES = {
    *(
        f"test_{HOMES[name].rpartition('.')[2]}"
        for name in zkconcurrent.__all__
        if isinstance(getattr(on_tasks, name, None), type)
    ),
    *(
        "test_cancel_waits",
        "test_hold",
        "test_locks",
        "test_losses",
        "test_resize",
        "test_revocation",
    ),
}
MODULES = [
    import_module(f"tests.integration.{name}") for name in sorted(FILES) if (INTEGRATION / f"{name}.py").exists()
]
globals().update((kind.__name__, kind) for kind in map(generic, MODULES))


def test_what_is_left_out_is_there() -> None:
    """Each test that is left out exists."""
    assert LEFT_OUT.keys() <= {name_of(module) for module in MODULES}
    for module in MODULES:
        assert LEFT_OUT.get(name_of(module), {}).keys() <= vars(module).keys()
