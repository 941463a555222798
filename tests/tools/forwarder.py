"""Until `tests/faults/test_ensemble.py` imports the helper itself."""

from tests.helpers.forwarder import Forwarder as Forwarder  # until tests/faults/test_ensemble.py is renamed
