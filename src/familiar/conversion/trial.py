"""The first run of a network of others, in a process of its own with bounded memory and time.

How much a network needs cannot be told from its file: ONNX Runtime computes what is constant when it opens it, and a
few operators double a tensor until no memory is left. Nor is it certain that the libraries that read it survive every
damaged file. So it is read, checked, opened and run where that harms nobody.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort

from familiar.conversion.graph import Layout, image_input, make_initializers_constant, read_network
from familiar.core.errors import BadNetwork
from familiar.core.json_text import parse_json
from familiar.core.onnx_runtime import session_options

BATCH = 7  # images at once, the most of `check_import`
MEMORY_BYTES = 6 * 2**30  # besides what the process has before it reads the file
COPIES = 4  # of the weights, besides: as they were read, for the check of shapes, in ONNX Runtime, and rearranged there
SECONDS = 300
MAX_TENSOR_BYTES = 2**31  # of one image's largest tensor, as far as its shape is known
REFUSED = 3  # exit status
STEPS = ("read", "checked", "opened", "run")


def try_network(path: Path, layout: Layout | None = None, size_px: int | None = None) -> None:
    """Read, check, open and run an ONNX network in another process.

    Memory is bounded where the system can do so (Linux; not Windows, and hardly macOS), time everywhere. A program that
    brings its own Python (PyInstaller) has no process for this: it should import only networks that it knows.

    Args:
        path: the file.
        layout: order of the axes of its input; None: by the shape of its input.
        size_px: side of the images it is run with, if it takes any size; None: such a network is only opened.

    Raises:
        BadNetwork: it cannot be imported, needs too much memory or time, or makes a library crash.
    """
    if getattr(sys, "frozen", False):  # a program made of this one, which would start itself
        return
    settings = {"path": os.fspath(path), "layout": layout, "size_px": size_px, "memory_bytes": MEMORY_BYTES}
    try:
        process = subprocess.run(
            [sys.executable, "-P", "-m", "familiar.conversion.trial", json.dumps(settings)],
            capture_output=True,
            timeout=SECONDS,
            check=False,
            # With -P and without "", no module is taken from the current folder, which may be the stranger's too.
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"},
        )
    except subprocess.TimeoutExpired as error:
        raise BadNetwork(f"{path}: did not give a vector within {SECONDS} seconds") from error
    if process.returncode == 0:
        return
    output = process.stdout.decode(errors="replace").splitlines()
    if process.returncode == REFUSED:
        raise BadNetwork(parse_json(output[-1]))
    done = [line for line in output if line in STEPS]
    step = STEPS[len(done)] if len(done) < len(STEPS) else STEPS[-1]
    raise BadNetwork(
        f"{path}: cannot be {step} with {MEMORY_BYTES // 2**30} GiB of memory, or crashes what reads it; "
        "if it is not damaged, use a smaller network"
    )


def run_trial(path: Path, layout: Layout | None, size_px: int | None, memory_bytes: int) -> None:
    """Do in this process what `try_network` does in another. Its memory remains limited.

    Raises:
        BadNetwork: the network cannot be imported.
    """
    _limit_memory(memory_bytes + COPIES * path.stat().st_size)
    model = read_network(path)
    _report("read")
    make_initializers_constant(model)
    taken = image_input(model, path, layout)
    _check_shapes(model, path)
    _report("checked")
    try:
        session = ort.InferenceSession(
            model.SerializeToString(), session_options(dequantize_at_opening=False), providers=["CPUExecutionProvider"]
        )
        _report("opened")
        height, width = taken.height_px or size_px, taken.width_px or size_px
        if height is None or width is None:  # the import refuses it for that
            return
        axes = (3, height, width) if taken.layout == "NCHW" else (height, width, 3)
        dtype = np.float16 if "float16" in session.get_inputs()[0].type else np.float32
        session.run(None, {taken.name: np.zeros((taken.batch or BATCH, *axes), dtype)})
        _report("run")
    except Exception as error:  # ONNX Runtime's errors share no public base
        raise BadNetwork(f"{path}: ONNX Runtime cannot run it ({str(error).strip().splitlines()[0]})") from error


def _check_shapes(model: onnx.ModelProto, path: Path) -> None:
    """Raise BadNetwork if a tensor of a known shape is larger than any embedder's."""
    try:
        # Without the values of shapes (data_prop): computing these can take all memory itself.
        inferred = onnx.shape_inference.infer_shapes(model)
    except Exception:  # whatever is wrong with its shapes, ONNX Runtime says it better
        return
    for value in inferred.graph.value_info:
        tensor = value.type.tensor_type
        items = 1
        for size in tensor.shape.dim:
            items *= max(1, size.dim_value)
        if 4 * items > MAX_TENSOR_BYTES:
            shape = " x ".join(str(size.dim_value or size.dim_param or "?") for size in tensor.shape.dim)
            raise BadNetwork(f"{path}: its tensor {value.name} has {shape} numbers, far more than an embedder needs")


def _limit_memory(more_bytes: int) -> None:
    """Let this process take so much memory more than it has. Does nothing where the system cannot do that."""
    if sys.platform == "win32":
        return
    import resource

    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        more_bytes += pages * resource.getpagesize()
    try:
        resource.setrlimit(resource.RLIMIT_AS, (more_bytes, resource.getrlimit(resource.RLIMIT_AS)[1]))
    except (OSError, ValueError):  # macOS; or the limit is lower already
        return


def _report(step: str) -> None:
    sys.stdout.write(f"{step}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    arguments = json.loads(sys.argv[1])
    try:
        run_trial(Path(arguments["path"]), arguments["layout"], arguments["size_px"], arguments["memory_bytes"])
    except BadNetwork as error:
        sys.stdout.write(json.dumps(str(error)) + "\n")
        sys.exit(REFUSED)
