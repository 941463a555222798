"""The modules of the public names."""

from __future__ import annotations

import ast
import inspect

import zkconcurrent

HOMES = {
    alias.name: node.module
    for node in ast.parse(inspect.getsource(zkconcurrent)).body
    if isinstance(node, ast.ImportFrom) and node.module
    for alias in node.names
}
"""The module, below the package, that `zkconcurrent` has each name from."""
