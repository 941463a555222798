"""Dictionaries under random faults: reads go only forward, no update is lost, and seeded bugs are found."""

from __future__ import annotations

import pytest

from tests.simulation.dicts import DictRun, random_steps
from tests.simulation.mutants import Edit, Mutant, find
from tests.simulation.run import COMMON_FAULTS, runs


def test_whatever_strikes() -> None:
    """A written value is read, reads go only forward, each write is applied once, and the copies agree at rest."""
    injected = {kind for run in runs(DictRun, random_steps, 100) for kind in run.injected}
    assert injected >= COMMON_FAULTS - {"late"} | {"lose"}


MIRROR, ENTRIES, FACE = "_recipes.mirror", "_recipes.entries", "_dict"
MUTANTS = [
    Mutant(
        "an older state replaces a newer one: no zxid is compared",
        (Edit(f"{MIRROR}:Mirror.keep", "known is None or known.zxid < zxid or zxid < known.zxid <= read_at", "True"),),
    ),
    Mutant(
        "a delete leaves no tombstone",
        (Edit(f"{MIRROR}:Mirror.keep", "gone is None or gone.zxid < zxid or gone.zxid <= read_at", "True"),),
    ),
    Mutant(
        "that a key was missing removes a newer entry",
        (Edit(f"{MIRROR}:Mirror.drop", "if known is not None and known.zxid > zxid:", "if False:"),),
    ),
    Mutant(
        "tombstones are forgotten while calls are under way",
        (
            Edit(
                f"{MIRROR}:Mirror.end",
                "oldest = min((self.under_way.get(other, math.inf) for other in others), default=math.inf)",
                "oldest = math.inf",
            ),
        ),
    ),
    Mutant(
        "what was listed on an earlier connection is served",
        (
            Edit(
                f"{FACE}:MapBase._copy",
                "if mirror.listed_on is not self._link.connection:",
                "if not mirror.listed:",
            ),
        ),
    ),
    Mutant(
        "served before it is listed anew",
        (
            Edit(
                f"{MIRROR}:follow",
                "        yield from _list(mirror)\n        mirror.listed, mirror.listed_on = True, connection\n"
                "        listed()\n",
                "        mirror.listed, mirror.listed_on = True, connection\n"
                "        listed()\n        yield from _list(mirror)\n",
            ),
        ),
    ),
    Mutant(
        "the watch is set after the listing",
        (
            Edit(
                f"{MIRROR}:follow",
                "        connection = yield WatchTree(ticket, mirror.changes)\n        yield from _list(mirror)\n",
                "        yield from _list(mirror)\n        connection = yield WatchTree(ticket, mirror.changes)\n",
            ),
        ),
    ),
    Mutant(
        "what the new listing lacks is kept",
        (Edit(f"{MIRROR}:_list", "**dict.fromkeys(list(mirror.entries))", ""),),
    ),
    Mutant(
        "a change before the wait is slept through",
        (Edit("_engine.driver:Call._wait_tree", "if not step.changes and link.connected", "if link.connected"),),
    ),
    Mutant(
        "a new connection before the wait is slept through",
        (
            Edit(
                "_engine.driver:Call._wait_tree",
                "if not step.changes and link.connected and link.connection is step.connection:",
                "if not step.changes:",
            ),
        ),
    ),
    Mutant(
        "a write whose reply was lost is sent again without a look",
        (Edit(f"{ENTRIES}:write", "if flight.doubt:", "if False:"),),
    ),
    Mutant(
        "a write whose reply was lost is believed to be applied",
        (Edit(f"{ENTRIES}:write", "if found.version != writer.version:", "if True:"),),
    ),
    Mutant(
        "a writer in doubt is used again",
        (
            Edit(f"{ENTRIES}:Flight.end", "writer is not None and not self.doubt", "writer is not None"),
            Edit(f"{ENTRIES}:Flight.end", "and self.doubt else None", "and False else None"),
        ),
    ),
    Mutant(
        "the copy does not learn of a write whose results were lost",
        (Edit(f"{ENTRIES}:_note", "if results is None:", "if results is None:\n        return"),),
    ),
    Mutant(
        "the copy does not learn of a write",
        (Edit(f"{ENTRIES}:_note", "mirror.keep(key, data, results[-1].mzxid)", "pass"),),
    ),
    Mutant(
        "replace writes whatever has come meanwhile",
        (Edit(f"{ENTRIES}:replace", "Set(entry, data, node.version))", "Set(entry, data, -1))"),),
    ),
    Mutant(
        "remove deletes whatever has come meanwhile",
        (Edit(f"{ENTRIES}:take", "version=node.version", "version=-1"),),
    ),
    Mutant(
        "an entry that was deleted and made anew passes for the old one",
        (Edit(f"{ENTRIES}:take", "Check(at.path, above.version)", "Check(at.path)"),),
    ),
    Mutant(
        "no node counts the entries that are made",
        (Edit(f"{ENTRIES}:_count", "Set(at.path, at.header, -1)", "Set(at.entries, b'', -1)"),),
    ),
    Mutant(
        "an ephemeral entry is overwritten where it is",
        (
            Edit(
                f"{ENTRIES}:put",
                "if at.ephemeral else (Set(entry, data, -1),)",
                "if False else (Set(entry, data, -1),)",
            ),
        ),
    ),
    Mutant(
        "a delete goes by the copy",
        (
            Edit(
                f"{ENTRIES}:delete", "    try:\n", "    if key not in mirror.entries:\n        return False\n    try:\n"
            ),
        ),
    ),
    Mutant(
        "setdefault goes by the copy",
        (
            Edit(
                f"{ENTRIES}:put_if_absent",
                "    while True:\n",
                "    if found:\n        return mirror.entries[key].data\n    while True:\n",
            ),
        ),
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_seeded_bugs_are_found(mutant: Mutant) -> None:
    """Runs that the library passes find each bug."""
    find(mutant, lambda seed: DictRun(random_steps(seed)))
