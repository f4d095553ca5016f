"""Measure how long collection, tests and fixtures take: `pytest --durations-file=FILE`.

A pytest plugin. The file is JSON, from which `python -m support.durations_page` writes docs/test-durations.md.
"""

import json
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

FIXTURES = "fixture durations"  # in a report's user_properties: [(fixture, scope, seconds)]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--durations-file", type=Path, help="write the duration of every test and fixture here")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--durations-file"):
        config.pluginmanager.register(_Recorder(config), "durations recorder")


class _Recorder:
    """Collects durations in a worker, hands them to the controlling process, and writes them there."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._started = time.perf_counter()
        self._collection_seconds: list[float] = []
        self._tests: dict[str, dict[str, Any]] = {}
        self._fixtures: list[dict[str, Any]] = []
        self._set_up: list[tuple[str, str, float]] = []

    @property
    def _in_worker(self) -> bool:
        return hasattr(self._config, "workerinput")

    @property
    def _has_workers(self) -> bool:
        return bool(getattr(self._config.option, "tx", None))

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Generator[None, object, object]:
        started = time.perf_counter()
        try:
            return (yield)
        finally:
            if not self._has_workers:  # these collect, and send their seconds
                self._collection_seconds.append(time.perf_counter() - started)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
        # Fixtures that this one asks for are set up before this hook runs, so their time is not counted twice.
        started = time.perf_counter()
        try:
            return (yield)
        finally:
            name = f"{fixturedef.baseid}::{fixturedef.argname}"
            self._set_up.append((name, str(fixturedef.scope), time.perf_counter() - started))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if self._set_up:
            report.user_properties.append((FIXTURES, self._set_up))
            self._set_up = []
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self._in_worker:
            return
        worker = getattr(getattr(report, "node", None), "gateway", None)
        test = self._tests.setdefault(report.nodeid, {"worker": worker.id if worker else "main"})
        test[report.when or "call"] = report.duration
        for key, durations in report.user_properties:
            if key == FIXTURES:
                for name, scope, seconds in durations:
                    self._fixtures.append({"name": name, "scope": scope, "seconds": seconds})

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._in_worker:
            session.config.workeroutput["collection_seconds"] = self._collection_seconds  # type: ignore[attr-defined]
            return
        durations = {
            "marks": self._config.option.markexpr,
            "whole_run_seconds": time.perf_counter() - self._started,
            "collection_seconds": self._collection_seconds,
            "tests": self._tests,
            "fixtures": self._fixtures,
        }
        path: Path = self._config.getoption("--durations-file")
        path.write_text(json.dumps(durations, indent=1), encoding="utf-8")

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._collection_seconds += node.workeroutput.get("collection_seconds", [])
