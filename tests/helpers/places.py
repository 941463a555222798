"""How often the same is tried where it shows the same: twice as a rule, everywhere in `make soak`."""

from __future__ import annotations

import os

PLACES = int(os.environ.get("SIM_PLACES", "2"))
FEWER = max(1, PLACES // 2)  # where other situations, or the simulation, come by the same place anyhow
