"""A plugin of pytest: runs the suites of limits and Flask-Limiter over Weir, whose server WEIR_URL names.

Cases that are made for a list of storages are made once, for Weir. Each test has a prefix of its own for its keys, in the place of
a storage that the suites' fixtures empty.
"""

import datetime
import inspect
import os
import pathlib
import urllib.request
import uuid
from unittest import mock

import pytest
from limits._storage_scheme import SCHEMES

import weir.limits

KIND = os.environ.get("WEIR_SUITE", "")
URL = os.environ["WEIR_URL"]
TIMEOUT = 10  # seconds; the suites wait for answers, however busy the machine


def storages(arguments, is_async):
    """Return the one case of the suites' lists of storages, or None for another list."""
    names = [name.strip() for name in arguments.split(",")] if isinstance(arguments, str) else list(arguments)
    if names[:2] != ["uri", "args"] or "fixture" not in names:
        return None
    values = {
        "uri": ("async+" if is_async else "") + URL,
        "args": {"timeout": TIMEOUT, "prefix": uuid.uuid4().hex + ":"},
        "expected_instance": weir.limits.AsyncWeirStorage if is_async else weir.limits.WeirStorage,
        "fixture": None,
    }
    return names, [pytest.param(*(values[name] for name in names), id="over_weir")]


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc):
    is_async = inspect.iscoroutinefunction(inspect.unwrap(metafunc.function))
    for node in metafunc.definition.listchain():
        for i, mark in enumerate(node.own_markers):
            if mark.name == "parametrize" and (found := storages(mark.args[0], is_async)):
                node.own_markers[i] = pytest.mark.parametrize(*found).mark


@pytest.fixture(autouse=True)
def _weir_for_all(monkeypatch):
    """Has Flask-Limiter keep in Weir what its tests would keep in another storage, whose server is not needed."""
    if KIND != "flask-limiter":
        return
    prefix = uuid.uuid4().hex + ":"
    for scheme in ("memory", "redis", "memcached", "mongodb"):
        monkeypatch.setitem(SCHEMES, scheme, lambda *_, **options: weir.limits.WeirStorage(URL, timeout=TIMEOUT, prefix=prefix))
    for client in ("redis.from_url", "pymemcache.Client", "pymongo.MongoClient"):
        monkeypatch.setattr(client, mock.MagicMock())


@pytest.fixture(scope="session")
def docker_services():
    return mock.MagicMock()


def clock(query):
    urllib.request.urlopen(urllib.request.Request(f"{os.environ['WEIR_CLOCK']}/?{query}", data=b""), timeout=TIMEOUT).close()


@pytest.fixture(autouse=True)
def _one_time(monkeypatch):
    """Has the server's clock go with the process's, which hiro moves."""
    import hiro
    stood = []

    def freeze(self, *args, original=hiro.Timeline.freeze):
        stood.append(clock("stand=1"))
        return original(self, *args)

    def forward(self, amount, original=hiro.Timeline.forward):
        seconds = amount.total_seconds() if isinstance(amount, datetime.timedelta) else amount
        clock(f"forward={seconds}s")
        return original(self, amount)
    monkeypatch.setattr(hiro.Timeline, "freeze", freeze)
    monkeypatch.setattr(hiro.Timeline, "forward", forward)
    yield
    if stood:
        clock("stand=0")


KNOWN = pathlib.Path(__file__).with_name("known.txt")


def known():
    """Return the reasons of cases that fail, by suite and case."""
    found = {}
    for line in KNOWN.read_text().splitlines():
        if line and not line.startswith("#"):
            suite, case, reason = line.split(" ", 2)
            if suite == KIND:
                found[case] = reason
    return found


def case_of(report):
    return report.nodeid.replace("tests/", "").replace("[over_weir]", "")


def pytest_terminal_summary(terminalreporter):
    reports = {outcome: {case_of(r) for r in terminalreporter.stats.get(outcome, [])} for outcome in ("passed", "failed", "error")}
    failed = reports["failed"] | reports["error"]
    passed, reasons = reports["passed"] - failed, known()
    terminalreporter.write_line(f"\n{KIND}: {len(passed)} of {len(passed | failed)} cases pass")
    for case in sorted(failed):
        terminalreporter.write_line(f"  fails: {case}: {reasons.get(case, 'UNKNOWN')}")
    for case in sorted(set(reasons) & passed):
        terminalreporter.write_line(f"  passes, and is in known.txt: {case}")


def pytest_sessionfinish(session):
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    failed = {case_of(r) for outcome in ("failed", "error") for r in terminal.stats.get(outcome, [])}
    if session.exitstatus in (0, 1) and session.testscollected:
        session.exitstatus = 1 if failed - set(known()) else 0
