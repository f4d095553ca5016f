"""How ONNX Runtime opens a network for inference."""

# ONNX Runtime has no types.
# pyright: basic

import onnxruntime as ort


def session_options(*, dequantize_at_opening: bool) -> ort.SessionOptions:
    """Make the options of a network that each caller runs in one thread, its own.

    Args:
        dequantize_at_opening: convert weights of 4 bits to float32 once. Without, ONNX Runtime does it in every call,
            which takes longer than all else; but it would no longer compute in integers where a network asks for that.
    """
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3  # errors only: warnings concern the graph, not the user
    if dequantize_at_opening:
        options.add_session_config_entry("session.disable_quant_qdq", "1")
    return options
