"""gunicorn, Celery, Django, uvicorn and aiohttp run what the pages tell the reader to copy, by the pages' commands."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, build_opener

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.conftest import Connect, InThread
from tests.docs.page import blocks, clean_environment, commands, files, save
from tests.helpers.eventually import eventually
from zkconcurrent import Election, Lock
from zkconcurrent.testing import Server

ROOT = Path(__file__).parents[2]
NAMES = "workers", "asyncio", "metrics", "frameworks", "celery", "web-jobs"
PAGES = [(ROOT / "docs" / "how-to" / f"{name}.md").read_text() for name in NAMES]
TYPED = [
    typed for page in PAGES for block in blocks(page) if block.kind == "console" for typed, _ in commands(block.text)
]
PATIENCE = 60.0

Run = Callable[..., "subprocess.Popen[Any]"]


@pytest.fixture
def folder(zookeeper: Server, tmp_path: Path) -> Path:
    """A folder with the pages' files."""
    for page in PAGES:
        for name, text in files(page, zookeeper.hosts).items():
            save(tmp_path / name, text)
    return tmp_path


@pytest.fixture
def apples(connect: Connect) -> Lock:
    """The lock that the page's `buy("apples")` takes."""
    return Lock(connect(), "/shop/apples")


@pytest.fixture
def run(folder: Path) -> Iterator[Run]:
    """Start a process there, in a group of its own, of which nothing is left after the test."""
    environment = clean_environment(folder)
    with ExitStack() as started:

        def run(command: list[str], more: Mapping[str, str] = {}, **options: Any) -> subprocess.Popen[Any]:
            env = {**environment, **more}
            process = subprocess.Popen(command, cwd=folder, env=env, start_new_session=True, **options)
            started.enter_context(process)  # closes its pipe and waits for it
            started.callback(end, process)
            return process

        yield run


def start(run: Run, program: str, *options: str, more: Mapping[str, str] = {}) -> subprocess.Popen[Any]:
    """Start what the page's command that begins so does, with two processes, and with options appended.

    The environment has what is in `more`, too.
    """
    [command] = [typed for typed in TYPED if typed.startswith(f"{program} ")]
    words = command.replace("--workers 4", "--workers 2").replace("--concurrency 4", "--concurrency 2").split()
    return run([*words, *options], more)


def end(process: subprocess.Popen[Any]) -> None:
    """Leave nothing of a process group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def stop(process: subprocess.Popen[Any]) -> None:
    """Stop it as its operator would, by a signal to the main process: it ends well, and so do its workers."""
    process.terminate()
    assert process.wait(PATIENCE) == 0

    def gone() -> bool:
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return True
        return False

    eventually(gone)


def ask(port: int, path: str = "/") -> str:
    """Ask the web server, past any proxy; an error is told by its number."""
    try:
        with build_opener(ProxyHandler({})).open(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE) as answer:
            return str(answer.read().decode())
    except HTTPError as error:
        with error:
            return str(error.code)


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def until_it_answers(server: subprocess.Popen[Any], port: int, says: str, path: str = "/") -> None:
    """Wait until a server, which must not end meanwhile, gives an answer that says so."""

    def answers() -> bool:
        assert server.poll() is None
        with suppress(URLError):
            return says in ask(port, path)
        return False

    eventually(answers, patience=PATIENCE)


def serve(
    run: Run,
    *options: str,
    program: str = "gunicorn --config gunicorn_conf.py",
    says: str = "apples, ",
    more: Mapping[str, str] = {},
) -> tuple[subprocess.Popen[Any], int]:
    """Run gunicorn until it answers; the process and the port it listens on."""
    port = free_port()
    bound = ("--bind", f"127.0.0.1:{port}", "--no-control-socket")
    gunicorn = start(run, program, *bound, *options, more=more)
    until_it_answers(gunicorn, port, says)
    return gunicorn, port


@pytest.mark.parametrize(
    ("program", "options", "waiting"),
    [
        pytest.param("gunicorn --config gunicorn_conf.py", (), 2, id="loaded by each"),
        pytest.param("gunicorn --config gunicorn_conf.py", ("--preload",), 2, id="preloaded"),
        # More than workers, each in a greenlet.
        pytest.param("gunicorn --worker-class gevent", (), 10, id="gevent"),
    ],
)
def test_gunicorn(
    run: Run, apples: Lock, in_thread: InThread, program: str, options: tuple[str, ...], waiting: int
) -> None:
    """Two workers wait for one lock, each with a client of its own; both answer once it is free, and stop well."""
    gunicorn, port = serve(run, *options, program=program)
    with apples:
        requests = [in_thread(ask, port) for _ in range(waiting)]
        waiters = eventually(lambda: len(them := apples.waiters()) == waiting and them, patience=PATIENCE)
        assert not any(request.done() for request in requests)
    answers = {request.result(PATIENCE) for request in requests}
    assert answers == {f"apples, alone among all processes, in {waiter.pid}" for waiter in waiters}
    assert len(answers) == 2 or waiting > 2
    stop(gunicorn)


def test_gunicorn_aborts_a_worker(run: Run, apples: Lock, in_thread: InThread) -> None:
    """A worker that waits too long is aborted: its request fails and leaves no node; the next request is served."""
    gunicorn, port = serve(run, "--timeout", "2")
    with apples:
        assert in_thread(ask, port).result(PATIENCE) == "500"
        eventually(lambda: not apples.waiters(), patience=PATIENCE)
    assert ask(port).startswith("apples, ")
    stop(gunicorn)


@pytest.mark.long
def test_metrics_of_gunicorn(run: Run, tmp_path: Path, connect: Connect, in_thread: InThread) -> None:
    """A scrape sums up what all workers count, and what they wait for; the wait of a killed one ends with it."""
    (tmp_path / "metrics").mkdir()
    more = {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path / "metrics")}
    # The third answers while two wait.
    options = ("--workers", "3", "--timeout", "120", "--preload")
    gunicorn, port = serve(run, *options, program="gunicorn --config metered_conf.py", says="sold", more=more)
    till = Lock(connect(), "/metered/till")

    def scrape() -> dict[str, float]:
        found = {}
        # The file of a worker that has just begun is empty for a moment, on which prometheus_client fails.
        told = eventually(lambda: (it := ask(port, "/metrics")) != "500" and it)
        for family in text_string_to_metric_families(str(told)):
            for sample in family.samples:
                assert sample.labels.pop("zkconcurrent_name") == "/metered/till"
                assert "pid" not in sample.labels
                outcome = sample.labels.get("zkconcurrent_outcome", "")
                found[f"{sample.name} {outcome} {sample.labels.get('le', '')}".strip()] = sample.value
        return found

    def both_wait() -> list[int]:
        """Return the processes of the two that wait, which have no time for anything else."""
        return pids if len(pids := [waiter.pid for waiter in till.waiters()]) == 2 else []

    before = scrape()
    with till:
        requests = [in_thread(ask, port) for _ in range(2)]
        assert len({*eventually(both_wait, patience=PATIENCE)}) == 2
        # A wait is told once its node stands in the queue.
        now = eventually(lambda: (it := scrape()).get("zkconcurrent_lock_wait_active") == 2 and it)
        assert now["zkconcurrent_lock_hold_active"] == 0
    assert {request.result(PATIENCE) for request in requests} == {"sold"}
    now = eventually(lambda: (it := scrape()).get("zkconcurrent_lock_hold_active") == 0 and it)
    assert now["zkconcurrent_lock_wait_active"] == 0
    assert now["zkconcurrent_lock_acquisitions_total waited"] == 2
    assert now["zkconcurrent_lock_wait_duration_seconds_count acquired"] == 2
    assert now["zkconcurrent_lock_wait_duration_seconds_bucket acquired +Inf"] == 2
    held = "zkconcurrent_lock_hold_duration_seconds_count released"
    assert now[held] == before[held] + 2
    assert not any("oldest" in name or "session" in name for name in now)

    with till:
        requests = [in_thread(ask, port) for _ in range(2)]
        os.kill(eventually(both_wait, patience=PATIENCE)[0], signal.SIGKILL)
        eventually(lambda: scrape()["zkconcurrent_lock_wait_active"] == 1, patience=PATIENCE)
    errors = [request.exception(PATIENCE) for request in requests]
    assert sum(error is None for error in errors) == 1
    eventually(lambda: scrape()["zkconcurrent_lock_wait_active"] == 0, patience=PATIENCE)
    stop(gunicorn)


def test_uvicorn(run: Run, connect: Connect, in_thread: InThread) -> None:
    """Two workers of the FastAPI application hold up the requests of one user alone, and stop well."""
    port = free_port()
    uvicorn = start(run, "uvicorn app:app", "--port", str(port))
    client = connect()
    until_it_answers(uvicorn, port, "user 1", "/users/1")
    seven = Lock(client, "/shop/users/7")
    with seven:
        requests = [in_thread(ask, port, "/users/7") for _ in range(4)]
        eventually(lambda: len(seven.waiters()) == 4, patience=PATIENCE)
        assert "user 8" in ask(port, "/users/8")
        assert not any(request.done() for request in requests)
    assert all("user 7" in request.result(PATIENCE) for request in requests)
    stop(uvicorn)


def test_aiohttp(run: Run, connect: Connect, in_thread: InThread) -> None:
    """The aiohttp worker holds up the requests of one user alone; a client that goes takes its waiter along."""
    port, client = free_port(), connect()
    [command] = [typed for typed in TYPED if typed.startswith("python serve.py ")]
    worker = run([*command.split()[:-1], str(port)])
    until_it_answers(worker, port, "user 1", "/users/1")
    seven = Lock(client, "/shop/users/7")
    with seven:
        with socket.create_connection(("127.0.0.1", port)) as goes:
            goes.sendall(b"GET /users/7 HTTP/1.1\r\nHost: shop\r\n\r\n")
            eventually(lambda: len(seven.waiters()) == 1, patience=PATIENCE)
        eventually(lambda: not seven.waiters(), patience=PATIENCE)
        request = in_thread(ask, port, "/users/7")
        eventually(lambda: len(seven.waiters()) == 1, patience=PATIENCE)
        assert "user 8" in ask(port, "/users/8")
    assert "user 7" in request.result(PATIENCE)
    stop(worker)


@pytest.mark.long
def test_django(folder: Path, run: Run, connect: Connect, in_thread: InThread) -> None:
    """Workers that gunicorn has forked off a process with a client have each a client of its own, and both wait."""
    views, port = folder / "store" / "views.py", free_port()
    views.write_text(views.read_text().replace("timeout=5", "timeout=60"))
    setup = "from django.core.wsgi import get_wsgi_application\n\napplication = get_wsgi_application()\n"
    (folder / "wsgi.py").write_text(f"{setup}from store import locks\nlocks.client()\n")
    command = f"gunicorn --preload --workers 2 --bind 127.0.0.1:{port} --no-control-socket wsgi:application"
    gunicorn = run(command.split(), {"DJANGO_SETTINGS_MODULE": "settings"})
    until_it_answers(gunicorn, port, "user 8", "/users/8/buy")
    seven = Lock(connect(), "/django/users/7")
    with seven:
        requests = [in_thread(ask, port, "/users/7/buy") for _ in range(2)]
        waiters = eventually(lambda: len(them := seven.waiters()) == 2 and them, patience=PATIENCE)
        assert len({waiter.pid for waiter in waiters} | {gunicorn.pid}) == 3
        assert len({waiter.session for waiter in waiters}) == 2
    assert all("user 7" in request.result(PATIENCE) for request in requests)
    stop(gunicorn)


def without_redis(folder: Path) -> str:
    """Return the end of a program of Celery's that makes a folder its broker."""
    for name in ("queue", "control", "results"):
        (folder / name).mkdir()
    options = {name: str(folder / "queue") for name in ("data_folder_in", "data_folder_out")}
    options["control_folder"] = str(folder / "control")
    return (
        f"\n\napp.conf.update(broker_url='filesystem://', broker_transport_options={options},"
        f" result_backend='file://{folder / 'results'}')\n"
        f"import sys\nsys.path.append({str(ROOT)!r})\n"
        "from tests.helpers.folder_broker import put_whole_messages\nput_whole_messages()\n"
    )


@pytest.mark.long
def test_celery(folder: Path, run: Run, apples: Lock) -> None:
    """Two processes of a worker wait for one lock, each with a client of its own; both tasks end, and it stops well.

    Redis is replaced: a folder is the broker.
    """
    tasks = folder / "tasks.py"
    tasks.write_text(tasks.read_text() + without_redis(folder))
    worker = start(run, "celery --app tasks worker", "--loglevel", "info")
    asking = "from tasks import buy\ntwo = [buy.delay('apples') for _ in range(2)]\nfor each in two: print(each.get())"
    with apples:
        caller = run([sys.executable, "-c", asking], stdout=subprocess.PIPE, text=True)
        waiters = eventually(lambda: len(them := apples.waiters()) == 2 and them, patience=PATIENCE)
    told, _ = caller.communicate(timeout=PATIENCE)
    assert caller.returncode == 0
    assert set(told.splitlines()) == {f"apples, alone among all processes, in {waiter.pid}" for waiter in waiters}
    assert len({waiter.pid for waiter in waiters}) == 2
    stop(worker)


@pytest.mark.long
def test_celery_beat(folder: Path, run: Run, connect: Connect) -> None:
    """Of two beats one sends tasks. Once it is killed, the other one sends; that one stops well, and leaves at once.

    Redis is replaced, as above, and nobody takes the tasks from the folder.
    """
    reports = folder / "reports.py"
    text = reports.read_text().replace("86400", "0.2").replace("/shop", "/shop?timeout=4")
    reports.write_text(text + without_redis(folder))
    election = Election(connect(), "/shop/celery/reports/beat")

    def sent() -> int:
        return len(list((folder / "queue").iterdir()))

    beats = []
    for n in range(1, 3):
        beats.append(start(run, "celery --app reports beat", "--pidfile", f"beat-{n}.pid", "--logfile", f"{n}.log"))
        eventually(lambda n=n: len(election.candidates()) == n, patience=PATIENCE)
    eventually(sent, patience=PATIENCE)
    waits = f"waiting to lead; {beats[0].pid}@"
    eventually(lambda: waits in (folder / "2.log").read_text(), patience=PATIENCE)
    end(beats[0])
    eventually(lambda: [each.pid for each in election.candidates()] == [beats[1].pid], patience=PATIENCE)
    before = sent()
    eventually(lambda: sent() > before, patience=PATIENCE)
    stop(beats[1])
    assert election.candidates() == []


def test_celery_once(run: Run) -> None:
    """A task runs once in its period for each customer, and returns None when it is skipped."""
    asking = "from invoices import invoice as f\nprint(f(7, 'one'), f(7, 'another'), f(8, 'one'))"
    caller = run([sys.executable, "-c", asking], stdout=subprocess.PIPE, text=True)
    told, _ = caller.communicate(timeout=PATIENCE)
    assert told == "one for 7 None one for 8\n"


@pytest.mark.long
@pytest.mark.fault(547)
def test_web_jobs(folder: Path, run: Run, connect: Connect) -> None:
    """Of three workers of uvicorn the leader alone runs the jobs. Once it is killed, another one does."""
    jobs = folder / "jobs.py"
    text = jobs.read_text().replace("seconds=60", "seconds=0.1").replace('"), "/shop', '?timeout=6"), "/shop')
    text = text.replace("    print(", "    import os\n    print(os.getpid(), file=open('ran', 'a'))\n    print(")
    jobs.write_text(text)
    port, election = free_port(), Election(connect(), "/shop/jobs")
    uvicorn = start(run, "uvicorn web_jobs:app", "--workers", "3", "--port", str(port))

    def ran() -> list[str]:
        return [pid for pid, _ in itertools.groupby((folder / "ran").read_text().split())]

    candidates = eventually(lambda: len(found := election.candidates()) == 3 and found, patience=PATIENCE)
    leader = candidates[0].pid
    assert leader is not None
    eventually(lambda: (folder / "ran").exists(), patience=PATIENCE)
    assert ran() == [str(leader)]
    os.kill(leader, signal.SIGKILL)
    eventually(lambda: len(ran()) == 2, patience=PATIENCE)
    assert ran() == [str(leader), str(election.candidates()[0].pid)]
    stop(uvicorn)
