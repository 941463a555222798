"""The demo is a folder to be run, not a package: its modules are imported as they import each other."""

import sys
from pathlib import Path

DEMO = Path(__file__).parents[2] / "examples" / "demo"
sys.path.append(str(DEMO))
