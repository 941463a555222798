"""Three servers: elections, frozen leaders, and routes between them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.eventually import eventually
from zkconcurrent.testing import Ensemble


def test_too_few() -> None:
    """Two servers are no ensemble: neither can fail."""
    with pytest.raises(ValueError, match="at least three"):
        Ensemble(2)


def test_no_quorum() -> None:
    """Without a majority nobody leads, and waiting for a leader ends in time."""
    with Ensemble() as ensemble:
        for server in ensemble.servers[:2]:
            server.kill()
        last = ensemble.servers[2]
        eventually(lambda: not last.status(timeout=5), "it believes in no majority any more")
        with pytest.raises(TimeoutError, match="no server"):
            ensemble.leader(timeout=0.2)


def test_a_member_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ensemble that does not come up raises with the log of the server that failed, and leaves nothing."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(RuntimeError, match="NumberFormatException"):
        Ensemble(settings={"initLimit": "soon"}).start()
    assert not any(tmp_path.iterdir())
