"""Run the cells that come as JSON on standard input in a notebook's kernel; print what each of them printed.

A cell that raises prints the name of its error and its text.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from jupyter_client.manager import start_new_kernel


def main() -> None:
    """Run them."""
    manager, client = start_new_kernel()
    told = []
    for cell in json.load(sys.stdin):
        printed: list[str] = []

        def note(message: Any, printed: list[str] = printed) -> None:
            content = message["content"]
            printed.append(content.get("text", f"{content.get('ename', '')} {content.get('evalue', '')}".strip()))

        client.execute_interactive(cell, timeout=100, output_hook=note)
        told.append("".join(printed))
    client.stop_channels()
    manager.shutdown_kernel(now=True)
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    main()
