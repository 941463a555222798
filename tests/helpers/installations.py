"""The real ZooKeeper, where tests run on the memory server."""

from __future__ import annotations

import os

from zkconcurrent.testing import Installation, NoServerError, find_installation


def real_installation() -> Installation:
    """Return the ZooKeeper that is installed here, even if `ZKCONCURRENT_SERVER` asks for the memory server.

    Raises:
        NoServerError: there is none.
    """
    if os.environ.get("ZKCONCURRENT_SERVER") != "memory":
        return find_installation()
    for kind in ("home", "debian", "path"):
        try:
            return find_installation(kind)
        except NoServerError:
            continue
    return find_installation("pyspark")
