/** Heads of cats, dogs and people in a photo, found as src/familiar/detection/heads.py finds them. */

import { halfToEven, resize } from "./resize.js";

const LABELS = ["cat", "dog", "person"]; // the columns of the network's scores
const SEARCH_SIDE_PX = 320; // the long side of a photo is enlarged or reduced to this
const [MULTIPLE_PX, MIN_SIDE_PX] = [32, 64]; // of the sides of the network's input
const MIN_SCORE = 0.5;
const SAME_HEAD_IOU = 0.45; // two boxes that overlap by more are one head
const POINTS = 5; // a person's landmarks: eyes, nose, corners of the mouth

/** The labels that a detector of Python finds, by its name; those that are not here do not exist in a browser. */
export const DETECTORS = { pets: ["cat", "dog"], auto: LABELS };

/**
 * The heads in a photo, best first: {box, score, label, landmarks}. Boxes are [left, top, right, bottom] in pixels of
 * the photo; landmarks are a person's five [x, y], and null for pets, whose crops do without.
 * @param network heads.onnx, as `openSession` of network.js opens it
 * @param {string[]} labels which heads to return
 */
export async function detectHeads(photo, network, labels, minScore = MIN_SCORE) {
  const heads = distinctHeads(await findCandidates(photo, network, minScore));
  const area = ({ box: [left, top, right, bottom] }) => (right - left) * (bottom - top);
  // Only now, so that a person is never returned as a pet.
  return heads
    .filter((head) => labels.includes(head.label))
    .map((head) => ({ ...head, score: Math.min(head.score, 1) }))
    .sort((a, b) => b.score * area(b) - a.score * area(a) || b.score - a.score);
}

/** All boxes of at least `minScore`, several for each head. */
export async function findCandidates(photo, network, minScore) {
  const { pixels, scale } = resizeForNetwork(photo);
  const { boxes, scores, points } = await network(pixels.rgb, pixels.width, pixels.height);
  const toPhoto = (value) => Math.fround(value / Math.fround(scale)); // in float32, as in Python
  const inside = (value, length) => Math.min(Math.max(toPhoto(value), 0), length);
  const candidates = [];
  for (let cell = 0; cell < scores.length / LABELS.length; cell++) {
    const byLabel = [...scores.subarray(LABELS.length * cell, LABELS.length * (cell + 1))];
    const best = Math.max(...byLabel);
    if (!(best >= minScore)) continue;
    const [left, right] = [0, 2].map((side) => inside(boxes[4 * cell + side], photo.width));
    const [top, bottom] = [1, 3].map((side) => inside(boxes[4 * cell + side], photo.height));
    if (!(left < right && top < bottom)) continue;
    const label = LABELS[byLabel.indexOf(best)];
    const at = 2 * POINTS * cell;
    const landmark = (_, point) => [toPhoto(points[at + 2 * point]), toPhoto(points[at + 2 * point + 1])];
    const landmarks = label === "person" ? Array.from({ length: POINTS }, landmark) : null;
    candidates.push({ box: [left, top, right, bottom], score: best, label, landmarks });
  }
  return candidates;
}

/** The best of those that overlap, whatever their labels (non-maximum suppression); best first. */
function distinctHeads(candidates) {
  const chosen = [];
  for (const candidate of candidates.toSorted((a, b) => b.score - a.score)) {
    if (!chosen.some((head) => overlaps(head.box, candidate.box))) chosen.push(candidate);
  }
  return chosen;
}

function overlaps(a, b) {
  const area = ([left, top, right, bottom]) => (right - left) * (bottom - top);
  const width = Math.min(a[2], b[2]) - Math.max(a[0], b[0]);
  const height = Math.min(a[3], b[3]) - Math.max(a[1], b[1]);
  const both = Math.max(width, 0) * Math.max(height, 0);
  return both > SAME_HEAD_IOU * (area(a) + area(b) - both);
}

/** The photo at the size that is searched, filled up with black at the right and below. */
function resizeForNetwork(photo) {
  const scale = SEARCH_SIDE_PX / Math.max(photo.width, photo.height);
  const side = (length) => Math.max(1, halfToEven(length * scale));
  const resized = resize(photo, side(photo.width), side(photo.height));
  const filled = (length) => Math.max(MIN_SIDE_PX, Math.ceil(length / MULTIPLE_PX) * MULTIPLE_PX);
  const [width, height] = [filled(resized.width), filled(resized.height)];
  const rgb = new Uint8Array(3 * width * height);
  for (let y = 0; y < resized.height; y++) {
    rgb.set(resized.rgb.subarray(3 * y * resized.width, 3 * (y + 1) * resized.width), 3 * y * width);
  }
  return { pixels: { rgb, width, height }, scale };
}
