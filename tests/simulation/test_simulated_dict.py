"""Dictionaries under random faults: reads go only forward, no update is lost, and seeded bugs are found."""

from __future__ import annotations

import pytest

from tests.simulation.checks.mutants import Mutant, bug, find
from tests.simulation.subjects.dicts import DictRun, random_steps
from tests.simulation.world.run import COMMON_FAULTS, runs


@pytest.mark.fault(99, 100)
def test_whatever_strikes() -> None:
    """A written value is read, reads go only forward, each write is applied once, and the copies agree at rest."""
    injected = {kind for run in runs(DictRun, random_steps, 100) for kind in run.injected}
    assert injected >= COMMON_FAULTS - {"late"} | {"lose"}


MIRROR, WRITE, BASE = "_recipes.map.mirror", "_recipes.map.write", "_threads.base.map_base"
MUTANTS = [
    bug(
        "an older state replaces a newer one: no zxid is compared",
        f"{MIRROR}:Mirror.keep",
        "known is None or known.zxid < zxid or zxid < known.zxid <= read_at",
        "True",
    ),
    bug(
        "a delete leaves no tombstone",
        f"{MIRROR}:Mirror.keep",
        "gone is None or gone.zxid < zxid or gone.zxid <= read_at",
        "True",
    ),
    bug(
        "that a key was missing removes a newer entry",
        f"{MIRROR}:Mirror.drop",
        "if known is not None and known.zxid > zxid:",
        "if False:",
    ),
    bug(
        "tombstones are forgotten while calls are under way",
        f"{MIRROR}:Mirror.end",
        "oldest = min((self.under_way.get(other, math.inf) for other in others), default=math.inf)",
        "oldest = math.inf",
    ),
    bug(
        "a listing of an earlier connection is served",
        f"{BASE}:MapBase._copy",
        "if mirror.listed_on is not self._link.connection:",
        "if not mirror.listed:",
    ),
    bug(
        "served before it is listed anew",
        f"{MIRROR}:follow",
        "        yield from _list(mirror)\n        mirror.listed, mirror.listed_on = True, connection\n"
        "        listed()\n",
        "        mirror.listed, mirror.listed_on = True, connection\n"
        "        listed()\n        yield from _list(mirror)\n",
    ),
    bug(
        "the watch is set after the listing",
        f"{MIRROR}:follow",
        "        connection = yield op.WatchRecursive(ticket, mirror.changes)\n        yield from _list(mirror)\n",
        "        yield from _list(mirror)\n        connection = yield op.WatchRecursive(ticket, mirror.changes)\n",
    ),
    bug("an entry that the new listing lacks is kept", f"{MIRROR}:_list", "**dict.fromkeys(list(mirror.entries))", ""),
    bug(
        "a change before the wait is slept through",
        "_engine.operations:_wait_tree",
        "if not step.changes and link.connected",
        "if link.connected",
    ),
    bug(
        "a new connection before the wait is slept through",
        "_engine.operations:_wait_tree",
        "if not step.changes and link.connected and link.connection is step.connection:",
        "if not step.changes:",
    ),
    bug(
        "a write whose reply was lost is sent again without a look",
        f"{WRITE}:write",
        "if map_write.doubt:",
        "if False:",
    ),
    bug(
        "a write whose reply was lost is believed to be applied",
        f"{WRITE}:write",
        "if found.version != receipt.version:",
        "if True:",
    ),
    bug(
        "a writer in doubt is used again",
        f"{WRITE}:MapWrite.end",
        "if self.doubt and self.receipt is not None:",
        "if False:",
    ),
    bug(
        "the copy does not learn of a write whose results were lost",
        f"{WRITE}:_note",
        "if results is None:",
        "if results is None:\n        return",
    ),
    bug("the copy does not learn of a write", f"{WRITE}:_note", "mirror.keep(key, data, results[-1].mzxid)", "pass"),
    bug(
        "replace writes whatever has come meanwhile",
        f"{WRITE}:replace",
        "op.SetNode(entry, data, node.version))",
        "op.SetNode(entry, data, -1))",
    ),
    bug("remove deletes whatever has come meanwhile", f"{WRITE}:take", "version=node.version", "version=-1"),
    bug(
        "an entry that was deleted and made anew passes for the old one",
        f"{WRITE}:take",
        "op.Check(at.path, above.version)",
        "op.Check(at.path)",
    ),
    bug(
        "no node counts the entries that are made",
        f"{WRITE}:_count",
        "op.SetNode(at.path, at.header, -1)",
        "op.SetNode(at.entries, b'', -1)",
    ),
    bug(
        "an ephemeral entry is overwritten where it is",
        f"{WRITE}:put",
        "if at.ephemeral else (op.SetNode(entry, data, -1),)",
        "if False else (op.SetNode(entry, data, -1),)",
    ),
    bug(
        "a delete goes by the copy",
        f"{WRITE}:delete",
        "    try:\n",
        "    if key not in mirror.entries:\n        return False\n    try:\n",
    ),
    bug(
        "setdefault goes by the copy",
        f"{WRITE}:put_if_absent",
        "    while True:\n",
        "    if found:\n        return mirror.entries[key].data\n    while True:\n",
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_seeded_bugs_are_found(mutant: Mutant) -> None:
    """Runs that the library passes find each bug."""
    find(mutant, lambda seed: DictRun(random_steps(seed)))
