"""tooz, imported without eventlet: where that is installed, tooz imports it, and it warns of every later fork."""

from __future__ import annotations

import sys
from typing import Any

_absent = "eventlet" not in sys.modules
_modules: dict[str, Any] = sys.modules
if _absent:
    _modules["eventlet"] = None
try:
    from tooz import ToozError, coordination

    from zkconcurrent import tooz as driver
finally:
    if _absent:
        del sys.modules["eventlet"]

__all__ = ["ToozError", "coordination", "driver"]
