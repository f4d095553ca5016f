import os

from familiar.core.cpu import available_cores


def test_available_cores_uses_affinity_then_cpu_count_then_1(monkeypatch):
    assert 1 <= available_cores() <= (os.cpu_count() or 1)
    monkeypatch.setattr("os.sched_getaffinity", lambda _process: {3, 5}, raising=False)
    assert available_cores() == 2
    monkeypatch.delattr("os.sched_getaffinity")
    monkeypatch.setattr("os.cpu_count", lambda: 7)
    assert available_cores() == 7
    monkeypatch.setattr("os.cpu_count", lambda: None)
    assert available_cores() == 1
