"""Runs of a bundle's network: ONNX Runtime, and batches made of the crops of all threads that wait for it."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np
import onnxruntime as ort
from jaxtyping import Float32, UInt8

from familiar.core.errors import BadBundle, FamiliarError
from familiar.core.onnx_runtime import session_options
from familiar.embedding.bundle import Bundle

# Maps crops in RGB to unit rows; may be called by several threads at once.
Network = Callable[[UInt8[np.ndarray, "n s s 3"]], Float32[np.ndarray, "n d"]]


class SharedNetwork:
    """A network that is run a few times at once. Calls that have to wait are put together to one batch.

    Args:
        network: maps crops to rows.
        runs: number of runs at once.
        batch_size: maximum number of crops of several calls in one run. A single call may have more.
    """

    def __init__(self, network: Network, runs: int, batch_size: int) -> None:
        self._network = network
        self._free = runs
        self._batch_size = batch_size
        self._waiting: deque[_Call] = deque()
        self._changed = threading.Condition()  # guards `_free`, `_waiting` and the calls' `is_taken`

    def __call__(self, crops_u8: UInt8[np.ndarray, "n s s 3"]) -> Float32[np.ndarray, "n d"]:
        """Run the network in this thread or, together with other calls, in another one.

        Args:
            crops_u8: as the network takes them.
        """
        caller = _Call(crops_u8)
        with self._changed:
            self._waiting.append(caller)
            self._changed.wait_for(lambda: caller.rows.done() or (self._free and not caller.is_taken))
            batch = [] if caller.rows.done() else self._take_batch(caller)
            self._free -= bool(batch)
        if batch:
            try:
                self._run(batch)
            finally:
                with self._changed:
                    self._free += 1
                    self._changed.notify_all()
        return caller.rows.result()

    def _take_batch(self, caller: "_Call") -> "list[_Call]":
        """Take a call, and as many of the others that wait as fit into its batch, in their order."""
        batch, room = [caller], self._batch_size - len(caller.crops_u8)
        self._waiting.remove(caller)
        while self._waiting and len(self._waiting[0].crops_u8) <= room:
            batch.append(self._waiting.popleft())
            room -= len(batch[-1].crops_u8)
        for call in batch:
            call.is_taken = True
        return batch

    def _run(self, batch: "Sequence[_Call]") -> None:
        try:
            rows = self._network(np.concatenate([call.crops_u8 for call in batch]) if batch[1:] else batch[0].crops_u8)
            parts = np.split(rows, np.cumsum([len(call.crops_u8) for call in batch])[:-1])
        except BaseException as error:  # raised in all calls
            for call in batch:
                call.rows.set_exception(error)
            return
        for call, part in zip(batch, parts, strict=True):
            call.rows.set_result(part)


@dataclass(eq=False)
class _Call:
    """A call that waits for its rows, or for an error."""

    crops_u8: UInt8[np.ndarray, "n s s 3"]
    rows: Future[Float32[np.ndarray, "n d"]] = field(default_factory=Future[Float32[np.ndarray, "n d"]])
    is_taken: bool = False


def onnx_network(bundle: Bundle, providers: Sequence[str]) -> Network:
    """Create a function that runs a bundle's network, each call in one thread.

    Args:
        bundle: with the network.
        providers: execution providers of ONNX Runtime, each for the operators that those before it do not support.

    Raises:
        BadBundle: ONNX Runtime cannot open it.
        FamiliarError: a provider is missing or does not start.
    """
    available = ort.get_available_providers()
    if missing := [provider for provider in providers if provider not in available]:
        raise FamiliarError(
            f"ONNX Runtime has no {missing[0]} here; it has {', '.join(available)}. Install one that has it, such as "
            "onnxruntime-gpu for CUDA"
        )
    options = session_options(dequantize_at_opening=bundle.metadata.precision == "int4-weights")
    try:
        session = ort.InferenceSession(bundle.onnx, options, providers=providers, enable_fallback=0)
    except Exception as error:  # ONNX Runtime's errors share no public base
        # The checksums are right, so the file is as it was exported.
        raise BadBundle(
            f"{bundle.path}: ONNX Runtime {ort.__version__} cannot open it with {', '.join(providers)}; if the network "
            f"is newer than that, update onnxruntime ({str(error).strip()})"
        ) from error
    # ONNX Runtime silently falls back to the CPU if a provider finds no device or library.
    if missing := [provider for provider in providers if provider not in session.get_providers()]:
        raise FamiliarError(
            f"ONNX Runtime has {missing[0]}, but it did not start: its device or its libraries are missing"
        )
    (taken,) = session.get_inputs()

    def run(crops_u8: UInt8[np.ndarray, "n s s 3"]) -> Float32[np.ndarray, "n d"]:
        (embeddings,) = session.run(None, {taken.name: crops_u8})
        assert isinstance(embeddings, np.ndarray)
        return embeddings

    size = taken.shape[0]
    return _in_batches(run, size) if isinstance(size, int) else run


def _in_batches(run: Network, size: int) -> Network:
    """Let a network of a fixed batch size (`export --fixed-batch`) take any number of crops."""

    def compute(crops_u8: UInt8[np.ndarray, "n s s 3"]) -> Float32[np.ndarray, "n d"]:
        missing = -len(crops_u8) % size
        filled = np.concatenate([crops_u8, np.repeat(crops_u8[-1:], missing, axis=0)])
        rows = [run(filled[start : start + size]) for start in range(0, len(filled), size)]
        return np.concatenate(rows)[: len(crops_u8)]

    return compute
