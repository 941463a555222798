"""Until `faults.py` imports the testbed itself."""

from tests.soak.testbed import Testbed as Stage

__all__ = ["Stage"]
