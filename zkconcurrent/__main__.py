"""`python -m zkconcurrent`: the command `zkconcurrent`."""

import sys

from ._command.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
