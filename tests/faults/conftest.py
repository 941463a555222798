"""Processes that do a job and are killed, stopped or forked."""

from __future__ import annotations

from tests.helpers.processes import spawning

SESSION = 4.0
SLACK = 10.0  # for a machine that is busy; the server looks for sessions to expire once a tick


party = spawning("tests.faults.party", SESSION)
