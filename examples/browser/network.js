/** Networks at work, by ONNX Runtime Web: pixels in, numbers out. */

import * as ort from "./node_modules/onnxruntime-web/dist/ort.wasm.bundle.min.mjs";

const WASM = new URL("node_modules/onnxruntime-web/dist/ort-wasm-simd-threaded.wasm", import.meta.url);
const UNIT_NORM_TOLERANCE = 1e-3; // as in Python

ort.env.logLevel = "error"; // warnings are about the graph, not for the user
ort.env.wasm.numThreads = 1; // more would need a server that sends cross-origin isolation headers

/** Fetches the runtime, so that nothing is fetched later. */
export async function ready() {
  const response = await fetch(WASM);
  if (!response.ok) throw new Error(response.statusText);
  ort.env.wasm.wasmBinary = await response.arrayBuffer();
}

/**
 * A function from RGB pixels, a Uint8Array of width * height * 3, to the network's outputs: a Float32Array by each name.
 * @param {Uint8Array} content an ONNX file whose only input is uint8 [1, height, width, 3]
 * @param {boolean} hasWeightsOf4Bits these are converted to floats once, not at each call, which would take longer than
 * all else
 */
export async function openSession(content, hasWeightsOf4Bits) {
  const extra = hasWeightsOf4Bits ? { session: { disable_quant_qdq: "1" } } : {};
  const session = await ort.InferenceSession.create(content, { executionProviders: ["wasm"], extra });
  return async (rgb, width, height) => {
    const input = new ort.Tensor("uint8", rgb, [1, height, width, 3]);
    const outputs = await session.run({ [session.inputNames[0]]: input });
    return Object.fromEntries(session.outputNames.map((name) => [name, outputs[name].data]));
  };
}

/**
 * A function from a crop, RGB as Uint8Array of size * size * 3, to its embedding.
 * @param {Uint8Array} content the whole bundle, which is an ONNX file
 * @param metadata as `readMetadata` of bundle.js reads it
 */
export async function openNetwork(content, metadata) {
  const size = metadata.preprocessing.size_px;
  const session = await openSession(content, metadata.precision === "int4-weights");
  const run = async (rgb) => Object.values(await session(rgb, size, size))[0];
  await run(new Uint8Array(3 * size * size)); // the first is slower than all others, and counts for none
  return async (rgb) => {
    const embedding = await run(rgb);
    if (!(Math.abs(Math.hypot(...embedding) - 1) <= UNIT_NORM_TOLERANCE)) {
      throw new Error("the network gives no unit vectors");
    }
    return embedding;
  };
}
