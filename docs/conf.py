"""How Sphinx builds these pages: MyST for the text, autodoc and napoleon for the reference, furo for the looks.

`make docs` runs it with warnings as errors. The pages also read well as plain Markdown, except for the reference made
from docstrings.
"""

from __future__ import annotations

import html
import re
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.errors import ExtensionError

import zkconcurrent

sys.path.insert(0, str(Path(__file__).parent))
import commands
import diagrams

project = "zkconcurrent"
author = "The zkconcurrent developers"
release = zkconcurrent.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"zkconcurrent {release}"
html_static_path = ["_static"]
html_css_files = ["tables.css"]
html_show_copyright = False
html_copy_source = False

myst_heading_anchors = 3
suppress_warnings = ["myst.xref_missing_download"]
pygments_style = "friendly"

# Of a console block, the button copies the commands, without their prompts and without the output.
copybutton_prompt_text = "$ "
copybutton_line_continuation_character = "\\"

autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100

napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
napoleon_custom_sections = ["Layout", "Invariant", "Cost", "Source"]

_LAST = ("Cost:", "Source:", "Invariant:", "Layout:")
_HEADINGS = {*_LAST, "Args:", "Attributes:", "Example:", "Raises:", "Returns:", "Yields:"}
_QUOTED = re.compile(r"(?<![`:\w])`([^`]+)`(?!`)")
_NAME = re.compile(r"[A-Za-z_][\w.]*")


def _to_rst(_app: Any, _what: str, _name: str, _obj: object, _options: Any, lines: list[str]) -> None:
    """Make reStructuredText of docstrings, which quote code as Markdown does: `a name` is a link where there is one."""

    def quoted(found: re.Match[str]) -> str:
        text = found[1]
        return f":py:obj:`{text}`" if _NAME.fullmatch(text.removesuffix("()")) else f"``{text}``"

    lines[:] = _QUOTED.sub(quoted, "\n".join(_znodes_last(lines))).split("\n")


def _znodes_last(lines: list[str]) -> list[str]:
    """Move the sections that few readers look for behind what a class or call takes, returns and raises."""
    sections: list[list[str]] = [[]]
    for line in lines:
        if line in _HEADINGS:
            sections.append([])
        sections[-1].append(line)
    return [line for each in sorted(sections, key=_place) for line in [*each, ""]]


def _place(section: list[str]) -> int:
    return _LAST.index(section[0]) if section and section[0] in _LAST else -1


_BETWEEN = r"[\s_/.,-]"
_PIECE = re.compile(rf"{_BETWEEN}*(?:(?!{_BETWEEN}).)+{_BETWEEN}*|{_BETWEEN}+")


def _let_names_break(app: Any, doctree: nodes.document, _page: str) -> None:
    """Let long names break between their words, so that no browser must break them within a word."""
    if app.builder.format != "html":
        return
    for literal in list(doctree.findall(nodes.literal)):
        pieces = [html.escape(piece) for piece in _PIECE.findall(literal.astext())]
        spans = "<wbr>".join(f'<span class="pre">{piece}</span>' for piece in pieces)
        classes = " ".join([*literal["classes"], "docutils literal notranslate"])
        literal.replace_self(nodes.raw("", f'<code class="{classes}">{spans}</code>', format="html"))


def _check_signature(_app: Any, _what: str, name: str, _obj: object, _options: Any, text: str | None, _as: Any) -> None:
    """Refuse a heading that does not show what the class or function takes."""
    if text and "*args: object" in text:
        raise ExtensionError(f"{name}{text} shows no arguments")


def setup(app: Any) -> None:
    """Have docstrings read before napoleon reads them, and what is made from code before it is shown."""
    commands.write()
    diagrams.draw_all()
    app.connect("doctree-resolved", _let_names_break)
    app.connect("autodoc-process-docstring", _to_rst, priority=400)
    app.connect("autodoc-process-signature", _check_signature)
