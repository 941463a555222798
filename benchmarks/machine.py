"""The machine and the software of a run: all that explains its figures, and nothing that names the place."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import kazoo

import zkconcurrent
from benchmarks.stage import Stage
from zkconcurrent.testing._java import find_java, java_version


def describe(stage: Stage) -> dict[str, str]:
    """Return it, word for word."""
    folders = {jar.parent for jar in stage.installation.curator_class_path}
    curator = [jar.stem.rpartition("-")[2] for folder in folders for jar in folder.glob("curator-recipes-[0-9]*.jar")]
    return {
        "processor": f"{_processor()}, {len(os.sched_getaffinity(0))} cores",
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "load before": f"{os.getloadavg()[0]:.1f}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "java": java_version(find_java()).replace('"', ""),
        "zookeeper": f"{stage.installation.version}, one server, no sync to the disk",
        "kazoo": kazoo.__version__,
        "curator": next(iter(curator), "none"),
        "zkconcurrent": zkconcurrent.__version__,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
