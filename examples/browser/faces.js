/** The faces of a photo: each as a crop with its embedding. */

import { cropFace } from "./align.js";
import { detectHeads } from "./detect.js";
import { loadPhoto } from "./photo.js";
import { resizeCrop } from "./resize.js";

/**
 * The embedding of a photo that is a crop already, and what it took.
 * @param bundle its `metadata`, and its network, `embed`, as `openNetwork` of network.js opens it
 */
export async function embedWholePhoto(file, { metadata, embed }) {
  const { preprocessing } = metadata;
  const start = performance.now();
  const photo = await loadPhoto(file, Math.max(preprocessing.size_px, preprocessing.resize_px));
  const crop = resizeCrop(photo, preprocessing);
  const readMs = performance.now() - start;
  const embedded = await embedTimed(crop, embed);
  return { box: null, landmarks: null, score: null, label: null, readMs, detectMs: null, ...embedded };
}

/**
 * The heads in a photo, best first, as `detectHeads` of detect.js returns them. Each has its crop and embedding besides,
 * its number, from the left as Python counts the faces of a photo, and `count`, the number of all. One that cannot be
 * embedded has the reason as its `problem` instead.
 * @param bundle as of `embedWholePhoto`
 * @param detector heads.onnx, as `openSession` of network.js opens it
 * @param {string[]} labels which heads to look for
 */
export async function embedHeads(file, { metadata, embed }, detector, labels) {
  const start = performance.now();
  const photo = await loadPhoto(file, Infinity); // at its full size: a head may be a small part of it
  const read = performance.now();
  const heads = await detectHeads(photo, detector, labels);
  const [readMs, detectMs] = [read - start, performance.now() - read];
  const center = ({ box: [left, , right] }) => left + right;
  const fromLeft = heads.toSorted((a, b) => center(a) - center(b) || a.box[1] - b.box[1]);
  const faces = [];
  for (const head of heads) {
    const position = { number: fromLeft.indexOf(head) + 1, count: heads.length };
    const face = { ...head, ...position, readMs, detectMs };
    try {
      const crop = cropFace(photo, head, metadata.preprocessing);
      faces.push({ ...face, crop, ...(await embedTimed(crop, embed)) });
    } catch (error) {
      faces.push({ ...face, problem: error.message });
    }
  }
  return faces;
}

async function embedTimed(crop, embed) {
  const start = performance.now();
  const embedding = await embed(crop.rgb);
  return { embedding, networkMs: performance.now() - start };
}

/** An URL under which the page can show a crop. */
export async function cropUrl({ rgb, width, height }) {
  const image = new ImageData(width, height);
  image.data.fill(255);
  for (let from = 0, to = 0; from < rgb.length; from += 3, to += 4) {
    for (let c = 0; c < 3; c++) image.data[to + c] = rgb[from + c];
  }
  const canvas = new OffscreenCanvas(width, height);
  canvas.getContext("2d").putImageData(image, 0, 0);
  return URL.createObjectURL(await canvas.convertToBlob());
}
