"""Runs of a network by several threads: what waits is put together, and everybody gets their own rows."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from familiar.embedding.networks import SharedNetwork


def crops(first: int, count: int) -> np.ndarray:
    """Crops of one pixel that are numbered."""
    numbers = np.arange(first, first + count, dtype=np.uint8)
    return np.repeat(numbers, 3).reshape(count, 1, 1, 3)


UNLUCKY = 250


class Gate:
    """A network whose first run waits until it is let go. It returns the numbers of its crops and notes batches."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.entered, self.let_go = threading.Event(), threading.Event()

    def __call__(self, crops_u8: np.ndarray) -> np.ndarray:
        self.batches.append(len(crops_u8))
        self.entered.set()
        self.let_go.wait(10)
        if (crops_u8 == UNLUCKY).any():
            raise ValueError("unlucky")
        return crops_u8[:, 0, 0, :1].astype(np.float32)


def call_while_busy(shared: SharedNetwork, gate: Gate, calls: list[np.ndarray]) -> list[np.ndarray | BaseException]:
    """Call with each while the first call is running, and return what came back."""
    with ThreadPoolExecutor(len(calls) + 1) as pool:
        pool.submit(shared, crops(200, 1))
        assert gate.entered.wait(10)
        futures = [pool.submit(shared, call) for call in calls]
        while len(shared._waiting) < len(calls):
            pass
        gate.let_go.set()
        return [future.exception() or future.result() for future in futures]


def test_waiting_calls_are_put_together():
    gate = Gate()
    shared = SharedNetwork(gate, 1, batch_size=8)
    answers = call_while_busy(shared, gate, [crops(3 * call, 3) for call in range(5)])
    for call, rows in enumerate(answers):
        np.testing.assert_array_equal(rows[:, 0], np.arange(3 * call, 3 * call + 3))
    assert gate.batches == [1, 6, 6, 3]


def test_large_call_runs_alone():
    gate = Gate()
    answers = call_while_busy(SharedNetwork(gate, 1, batch_size=2), gate, [crops(0, 5)])
    assert len(answers[0]) == 5
    assert gate.batches == [1, 5]


def test_error_reaches_all_calls_of_the_batch_and_no_other():
    gate = Gate()
    calls = [crops(UNLUCKY + call, 1) for call in (-1, 0, 1)]
    answers = call_while_busy(SharedNetwork(gate, 1, batch_size=1), gate, calls)
    assert [isinstance(answer, ValueError) for answer in answers] == [False, True, False]
    gate = Gate()
    answers = call_while_busy(SharedNetwork(gate, 1, batch_size=3), gate, calls)
    assert [isinstance(answer, ValueError) for answer in answers] == [True, True, True]


@given(st.lists(st.integers(1, 5), min_size=1, max_size=20), st.integers(1, 3), st.integers(1, 6))
def test_every_call_gets_its_own_rows(sizes: list[int], runs: int, batch_size: int):
    running, most = 0, 0
    lock = threading.Lock()

    def network(crops_u8: np.ndarray) -> np.ndarray:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        rows = crops_u8[:, 0, 0, :1].astype(np.float32)
        with lock:
            running -= 1
        return rows

    shared = SharedNetwork(network, runs, batch_size)
    starts = np.cumsum([0, *sizes])
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda call: shared(crops(starts[call], sizes[call])), range(len(sizes))))
    for start, size, rows in zip(starts, sizes, answers, strict=False):
        np.testing.assert_array_equal(rows[:, 0], np.arange(start, start + size))
    assert most <= runs


def test_network_that_fails_can_be_called_again():
    shared = SharedNetwork(lambda crops_u8: crops_u8[:, 0, 0, 5], 1, 4)
    for _ in range(3):
        with pytest.raises(IndexError):
            shared(crops(0, 1))
