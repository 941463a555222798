"""The reference of the command is what its parser says."""

from __future__ import annotations

import re

from tests.docs.page import script

commands = script("commands")


def test_the_page_is_what_the_parser_says() -> None:
    """The file is just what is made now: after a change of an option, run `python docs/commands.py`."""
    assert commands.FILE.read_text() == commands.page()


def test_the_mark_that_the_page_deletes() -> None:
    """The path of a mark is below the chroot of the URL, which the page's line for zkCli names, too."""
    page = (commands.FILE.parents[1] / "how-to" / "command.md").read_text()
    lock = re.search(r"_URL=zk://(?P<first>\w+)[\w,]*(?P<chroot>/\w+)\n.* --once-per .* (?P<path>/\S+) -- ", page)
    assert lock is not None
    assert f"`zkCli.sh -server {lock['first']}{lock['chroot']} delete {lock['path']}.once`" in page
