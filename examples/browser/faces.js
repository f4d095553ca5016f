/** The faces of a photo: each as a crop with its embedding. */

import { cropFace } from "./align.js";
import { detectHeads } from "./detect.js";
import { loadPhoto } from "./photo.js";
import { resizeCrop } from "./resize.js";

/**
 * The embedding of a photo that is a crop already, and what it took.
 * @param embedFace embeds a face, from a function that crops it for a network by its preprocessing, and its label
 */
export async function embedWholePhoto(file, embedFace) {
  let readMs = 0;
  const crop = async (preprocessing) => {
    const start = performance.now();
    const photo = await loadPhoto(file, Math.max(preprocessing.size_px, preprocessing.resize_px));
    const resized = resizeCrop(photo, preprocessing);
    readMs += performance.now() - start;
    return resized;
  };
  const face = await embedFace(crop, null);
  return { box: null, landmarks: null, score: null, label: null, readMs, detectMs: null, ...face };
}

/**
 * The heads in a photo, best first, as `detectHeads` of detect.js returns them. Each has its crop and embedding besides,
 * its number, from the left as Python counts the faces of a photo, and `count`, the number of all. One that cannot be
 * embedded has the reason as its `problem` instead.
 * @param embedFace as of `embedWholePhoto`
 * @param detector heads.onnx, as `openSession` of network.js opens it
 * @param {string[]} labels which heads to look for
 */
export async function embedHeads(file, embedFace, detector, labels) {
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
    const crop = (preprocessing) => cropFace(photo, head, preprocessing);
    const face = await embedFace(crop, head.label).catch((error) => ({ problem: error.message }));
    faces.push({ ...head, ...position, readMs, detectMs, ...face });
  }
  return faces;
}

/**
 * A face's crop and embedding by one bundle.
 * @param bundle its `metadata`, and its network, `embed`, as `openNetwork` of network.js opens it
 */
export async function embedCrop({ metadata, embed }, crop) {
  const cropped = await crop(metadata.preprocessing);
  const start = performance.now();
  const embedding = await embed(cropped.rgb);
  return { crop: cropped, embedding, networkMs: performance.now() - start };
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
