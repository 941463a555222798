"""The long description of the package: README.md, whose links an index can follow.

Everything else is in pyproject.toml and setup.cfg. Set `Source` of `[project.urls]` in pyproject.toml to the address of
the repository: then the README's relative links and pictures become absolute, those of the released version's tag.
"""

import re
import sys
from pathlib import Path

from setuptools import setup

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_RELATIVE = re.compile(r"(!?)(\[[^\[\]]*\]\()(?!\w+:|#)([^)\s]+\))")


def long_description(folder: Path) -> str:
    """Return the text of README.md, with absolute links if the address of the repository is known."""
    readme = (folder / "README.md").read_text(encoding="utf-8")
    source = tomllib.loads((folder / "pyproject.toml").read_text())["project"].get("urls", {}).get("Source")
    if source is None:
        return readme
    (version,) = re.findall(r'^__version__ = "(.*)"', (folder / "zkconcurrent/_version.py").read_text(), re.MULTILINE)
    at = "HEAD" if "dev" in version else f"v{version}"

    def absolute(link: "re.Match[str]") -> str:
        return f"{link[1]}{link[2]}{source}/{'raw' if link[1] else 'blob'}/{at}/{link[3]}"

    return _RELATIVE.sub(absolute, readme)


setup(long_description=long_description(Path(__file__).parent), long_description_content_type="text/markdown")
