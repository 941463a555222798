"""Elections that Java services on Curator share: one candidate leads, whichever side it is of, and both see all ids."""

from __future__ import annotations

import pytest
from kazoo.client import KazooClient

from tests.helpers.curator import CuratorClient
from tests.helpers.eventually import eventually
from zkconcurrent import Election

LAYOUTS = pytest.mark.parametrize("layout", ["selector", "latch"])
LONG = 30.0


class Candidate:
    """A candidate in Java."""

    def __init__(self, java: CuratorClient, layout: str, path: str) -> None:
        self._java, self._path = java, path
        self._kind = "leaderSelector" if layout == "selector" else "leaderLatch"

    def ask(self, verb: str, *arguments: object) -> str:
        """Have it do something."""
        return self._java.call(f"{self._kind}.{verb}", self._path, *arguments).result(LONG)

    def leads(self) -> bool:
        """Whether it leads."""
        return self.ask("leads") == "true"

    def participants(self) -> list[str]:
        """The leader and candidates as this side sees them."""
        return self.ask("participants").split("\t")


def ids(election: Election) -> list[str]:
    """Return the ids that we see, the leader's first."""
    return [each.id for each in election.candidates()]


@LAYOUTS
def test_java_follows_us(layout: str, client: KazooClient, java: CuratorClient, zk_path: str) -> None:
    """Java sees our id and our published data; it leads when we are done, and not before."""
    ours, theirs = Election(client, zk_path, id="python ü", layout=layout), Candidate(java, layout, zk_path)
    with ours.lead() as term:
        theirs.ask("stand", "java ü")
        eventually(lambda: theirs.participants() == ["python ü leads", "java ü"])
        assert theirs.ask("leader") == "python ü"
        assert ids(ours) == ["python ü", "java ü"]
        if layout == "selector":
            term.publish(b"10.0.0.7:8080")
            assert theirs.ask("leader") == "10.0.0.7:8080"
        else:  # Java would never lead
            with pytest.raises(RuntimeError, match="LeaderLatch"):
                term.publish(b"10.0.0.7:8080")
        assert not theirs.leads()
        token = term.fencing_token
    eventually(theirs.leads)
    leader = ours.leader()
    assert (leader.id, leader.session) == ("java ü", java.session)
    assert leader.token > token
    theirs.ask("withdraw")
    eventually(lambda: ours.leader() is None)


@LAYOUTS
@pytest.mark.parametrize("end", ["withdraw", "expire"])
def test_we_follow_java(layout: str, end: str, client: KazooClient, java: CuratorClient, zk_path: str) -> None:
    """We see Java's id, also an observer does; we lead when Java withdraws, or its session ends, and not before."""
    ours, theirs = Election(client, zk_path, id="python", layout=layout), Candidate(java, layout, zk_path)
    theirs.ask("stand", "java")
    eventually(theirs.leads)
    leaders = ours.observe()
    assert next(leaders).id == "java"  # type: ignore[union-attr]
    ours.stand()
    eventually(lambda: ids(ours) == ["java", "python"])
    assert theirs.participants() == ["java leads", "python"]
    assert ours.wait(0.2) is None
    if end == "withdraw":
        theirs.ask("withdraw")
    else:
        java.expire()
    assert ours.wait(LONG) is not None
    assert next(leaders).id == "python"  # type: ignore[union-attr]
    ours.withdraw()
