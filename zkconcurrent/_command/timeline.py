"""`timeline`: looks at queues again and again for some seconds, and draws who held and who waited meanwhile, as SVG.

It reads each queue ten times a second, or less often where a look takes long, and leaves no watch. So what lasts for
less than the time between two looks may not be in the picture, which tells how many looks there were.
"""

from __future__ import annotations

import os
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import TypeAlias
from xml.sax.saxutils import escape

from .._kazoo.link import Link
from .._kazoo.replies import kazoo_errors
from .._threads.base.contender import Contender
from .look import Scan
from .outcome import CommandError, Exit, escaped, say
from .server import link_of, told

_BETWEEN = 0.1  # seconds
# A look takes at most this part of the time.
_SHARE = 0.25
# Of each path; a picture of more is no help.
_MOST_ROWS = 50
_LONGEST = 46  # characters
_LEFT, _WIDTH, _RIGHT, _ROW, _TOP, _HEAD = 330, 1200, 30, 18, 64, 34
_HELD, _WAITS, _INK, _PALE, _RULE = "#2a9d5c", "#c9ced6", "#1f2430", "#6b7785", "#e3e6ea"


# A thread: its name, host and process, as its node tells, or the text of a stranger; and what tells apart those of one
# name.
_Thread: TypeAlias = tuple[str, str]
# Whether it held, from when, and until when.
_Span: TypeAlias = tuple[bool, float, float]


@dataclass
class WatchedPath:
    """All that was seen at one path.

    Attributes:
        path: the path.
        rows: the threads, in the order in which they came, with their spans.
        most: how many waited at most at once.
        held: for how many seconds somebody held.
    """

    path: str
    rows: dict[_Thread, list[_Span]] = field(default_factory=dict)
    most: int = 0
    held: float = 0.0

    def note(self, seen: dict[_Thread, bool], before: float, now: float) -> None:
        """Note what a look has shown, after one that came before."""
        for thread, held in seen.items():
            spans, start = self.rows.setdefault(thread, []), before
            if spans and spans[-1][0] == held and spans[-1][2] == before:
                _, start, _ = spans.pop()
            spans.append((held, start, now))
        self.most = max(self.most, sum(not held for held in seen.values()))
        self.held += (now - before) * any(seen.values())


def timeline(found: Namespace) -> int:
    """Watch some paths, and draw what was seen; return the exit code."""
    _check_file(found.output)
    watched = [WatchedPath(path) for path in found.paths]
    began = datetime.now(timezone.utc)
    with link_of(found) as link:
        for each in watched:
            if link.client.exists(each.path) is None:
                raise kazoo_errors.NoNodeError
        looks, seconds, code = _watch(link, watched, found.seconds)
    with _told_of(found.output):
        Path(found.output).write_text(draw(watched, looks, seconds, began), encoding="utf-8")
    return code


def _check_file(file: str) -> None:
    """Return if a file can be written, as far as that can be known; leave no file where there was none.

    Raises:
        CommandError: it can't be; better now than when what was watched is over.
    """
    with _told_of(file):
        try:
            os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            # Neither wait for the reader of a pipe, nor look where a link leads that leads nowhere.
            if os.path.isfile(file) or os.path.isdir(file):
                os.close(os.open(file, os.O_WRONLY))
        else:
            os.unlink(file)


@contextmanager
def _told_of(file: str) -> Iterator[None]:
    """Make a context manager that turns the error of a file into the end of the command."""
    try:
        yield
    except OSError as error:
        raise CommandError(Exit.NOT_WRITTEN, f"{file}: {error.strerror}") from None


def _watch(link: Link, watched: Sequence[WatchedPath], seconds: float) -> tuple[int, float, int]:
    """Look at all paths until the time is up, Ctrl-C or an error; return how often, for how long, and the exit code."""
    began = time.monotonic()
    before, looks, code = 0.0, 0, 0
    try:
        while before < seconds:
            pause = max(_BETWEEN, (time.monotonic() - began - before) * (1 / _SHARE - 1)) if looks else 0.0
            time.sleep(min(pause, max(0.0, seconds - (time.monotonic() - began))))
            now = time.monotonic() - began
            # Noted together, as Ctrl-C may end a look.
            with told(link):
                found = [(each, _look(link, each.path)) for each in watched]
            for each, seen in found:
                each.note(seen, before, now)
            before, looks = now, looks + 1
    except KeyboardInterrupt:
        # An operator who has seen enough gets the picture of that.
        say("interrupted: drawn is what was seen until then")
    except CommandError as error:
        if not looks:
            raise
        say(f"{error}; drawn is what was seen until then")
        code = error.code
    return looks, max(before, 0.001), code


def _look(link: Link, path: str) -> dict[_Thread, bool]:
    """Return who is there, and whether they hold."""
    scan = Scan(link)
    try:
        places = scan.queue(path)
    except kazoo_errors.NoNodeError:
        # Its container was removed: nobody is there.
        return {}
    if not places and scan.kazoos(path):
        raise CommandError(Exit.OTHER_KIND, f"kazoo's own recipes use {path}, and do not tell who holds")
    seen: dict[_Thread, bool] = {}
    for place in places:
        key = _who(place.contender), place.contender.by or str(place.contender.session)
        seen[key] = seen.get(key, False) or place.holds
    return seen


def _who(contender: Contender) -> str:
    if contender.pid is None:
        return repr(contender.host or "?")
    return f"{contender.thread}, {contender.host} {contender.pid}"


# -- the picture -------------------------------------------------------------------------------------------------------


def draw(watched: Sequence[WatchedPath], looks: int, seconds: float, began: datetime) -> str:
    """Return the picture."""
    body: list[str] = []
    y = _TOP
    for each in watched:
        y += _HEAD
        share = f"held for {100 * each.held / seconds:.0f} % of the time, at most {each.most} waited"
        body.append(_text(16, y - 10, f"{_short(each.path, 90)}: {share}", size=14, bold=True))
        for (who, _), spans in [*each.rows.items()][:_MOST_ROWS]:
            body += _row(who, spans, y, seconds)
            y += _ROW
        if len(each.rows) > _MOST_ROWS:
            body.append(_text(16, y + 13, f"and {len(each.rows) - _MOST_ROWS} more", fill=_PALE))
            y += _ROW
    title = f"Who held, and who waited, for {seconds:.1f} s from {began:%F %T} UTC"
    head = [
        _text(16, 30, title, size=18, bold=True),
        _text(16, 52, f"{looks} looks: what was shorter than the time between two may be missing", fill=_PALE),
        *_box(760, 42, 18, _HELD, ""),
        _text(784, 53, "holds"),
        *_box(850, 42, 18, _WAITS, ""),
        _text(874, 53, "waits"),
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y + 40}" width="{_WIDTH}"'
            f' height="{y + 40}" font-family="sans-serif" font-size="12" role="img">',
            f"<title>{escape(title)}</title>",
            f'<rect width="{_WIDTH}" height="{y + 40}" fill="#ffffff"/>',
            *_axis(y + 6, seconds),
            *head,
            *body,
            "</svg>",
            "",
        ]
    )


def _row(who: str, spans: Sequence[_Span], y: int, seconds: float) -> Iterator[str]:
    yield _text(_LEFT - 10, y + 13, _short(who, _LONGEST), anchor="end")
    for held, start, end in spans:
        left, right = _x(start, seconds), _x(end, seconds)
        says = f"{who[:300]} {'held' if held else 'waited'} from {start:.1f} to {end:.1f} s"
        yield from _box(left, y + 2, max(right - left, 1.0), _HELD if held else _WAITS, says)


def _axis(bottom: int, seconds: float) -> Iterator[str]:
    step = next(each * 10**power for power in range(-2, 9) for each in (1, 2, 5) if each * 10**power * 10 >= seconds)
    for n in range(int(seconds / step) + 1):
        x = _x(n * step, seconds)
        yield f'<path d="M{x:.1f} {_TOP}V{bottom}" stroke="{_RULE}"/>'
        yield _text(x, bottom + 16, f"{n * step:g} s", fill=_PALE, anchor="middle")


def _x(at: float, seconds: float) -> float:
    return _LEFT + at / seconds * (_WIDTH - _LEFT - _RIGHT)


def _box(x: float, y: float, width: float, fill: str, says: str) -> Iterator[str]:
    title = f"<title>{escape(escaped(says))}</title>" if says else ""
    yield f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{_ROW - 4}" fill="{fill}">{title}</rect>'


def _text(
    x: float, y: float, words: str, *, fill: str = _INK, anchor: str = "start", size: int = 12, bold: bool = False
) -> str:
    weight = ' font-weight="bold"' if bold else ""
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}" font-size="{size}"{weight}'
    return f"<text {place}>{escape(escaped(words))}</text>"


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."
