/** Heads of cats, dogs and people in a photo, found as src/familiar/detection/heads.py finds them. */

import { halfToEven, resize } from "./resize.js";

const LABELS = ["cat", "dog", "person"]; // the columns of the network's scores
const SEARCH_SIDE_PX = 320; // the long side of a photo is enlarged or reduced to this
const [MULTIPLE_PX, MIN_SIDE_PX] = [32, 64]; // of the sides of the network's input
const MIN_SCORE = 0.5;
// A large photo is looked at a second time, at 2 / 15 of its size; see heads.py.
const CLOSER_SHARE = 2 / 15;
const CLOSER_SIDES_PX = [480, 1024];
const [MIN_FIRST_HEAD, MAX_CLOSER_HEAD] = [1 / 8, 1 / 5]; // longer sides, in long sides of the photo
const ON_HEAD = 0.5; // of the smaller box
// A smaller copy shows heads that fill the photo; a photo may lie on its side; a person's face is looked at enlarged.
const [SMALLER_SIDE_PX, MIN_SMALLER_HEAD, MIN_SMALLER_SCORE] = [160, 0.3, 0.65];
const [SURE_SCORE, MIN_TURNED_SCORE, TURNED_GAIN] = [0.75, 0.75, 0.1];
const TURNED_SIDES_PX = [SEARCH_SIDE_PX, 416];
const [PERSON_CUT, PERSON_SIDE_PX] = [1.5, 160];
const MIRRORED = [1, 0, 2, 4, 3];
const SAME_HEAD_IOU = 0.45; // two boxes that overlap by more are one head
const POINTS = 5; // a person's landmarks: eyes, nose, corners of the mouth

/**
 * What this finds in the place of a detector of Python, by its name: of people it has landmarks, as "yunet" has. Those
 * that are not here have nothing like them in a browser.
 */
export const DETECTORS = { pets: ["cat", "dog"], people: ["person"], auto: LABELS, yunet: ["person"] };

/**
 * The heads in a photo, best first: {box, score, label, landmarks}. Boxes are [left, top, right, bottom] in pixels of
 * the photo; landmarks are a person's five [x, y], and null for pets, whose crops do without.
 * @param network heads.onnx, as `openSession` of network.js opens it
 * @param {string[]} labels which heads to return
 */
export async function detectHeads(photo, network, labels, minScore = MIN_SCORE) {
  const closerPx = closerSidePx(photo);
  const searched = closerPx ? resizeTo(photo, closerPx) : photo;
  const look = async (pixels, sidePx, size) =>
    distinctHeads(await findCandidates(pixels, network, minScore, sidePx, size));
  let heads = await look(searched, SEARCH_SIDE_PX, photo);
  if (closerPx) heads = combine(heads, await look(searched, closerPx, photo), Math.max(photo.width, photo.height));
  if (!heads.length) {
    const smaller = await look(searched, SMALLER_SIDE_PX, photo);
    const leastPx = MIN_SMALLER_HEAD * photo.width * photo.height;
    heads = smaller.filter(({ box, score }) => score >= MIN_SMALLER_SCORE && areaOf(box) >= leastPx);
  }
  if (bestScore(heads) < SURE_SCORE) {
    const turned = await lookAtTurned(searched, photo, look, bestScore(heads));
    if (turned.length) heads = turned;
  }
  // Only now, so that a person is never returned as a pet.
  heads = heads.filter((head) => labels.includes(head.label));
  for (const [row, head] of heads.entries()) {
    if (head.label === "person") heads[row] = await alignPerson(head, photo, look);
  }
  return heads
    .sort((a, b) => b.score * areaOf(b.box) - a.score * areaOf(a.box) || b.score - a.score);
}

/**
 * All boxes of at least `minScore`, several for each head.
 * @param searched the photo, which may have been made smaller
 * @param {number} sidePx the long side that the network gets
 * @param photo {width, height} of the photo that the boxes are in
 */
export async function findCandidates(searched, network, minScore, sidePx = SEARCH_SIDE_PX, photo = searched) {
  const pixels = fillForNetwork(resizeTo(searched, sidePx));
  const scale = sidePx / Math.max(photo.width, photo.height);
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
    candidates.push({ box: [left, top, right, bottom], score: Math.min(best, 1), label, landmarks });
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
  const both = shared(a, b);
  return both > SAME_HEAD_IOU * (areaOf(a) + areaOf(b) - both);
}

/** The area that two boxes share. */
function shared(a, b) {
  const width = Math.min(a[2], b[2]) - Math.max(a[0], b[0]);
  const height = Math.min(a[3], b[3]) - Math.max(a[1], b[1]);
  return Math.max(width, 0) * Math.max(height, 0);
}

const isOn = (a, b) => shared(a, b) >= ON_HEAD * Math.min(areaOf(a), areaOf(b));
const bestScore = (heads) => Math.max(0, ...heads.map((head) => head.score));
const longerSide = ([left, top, right, bottom]) => Math.max(right - left, bottom - top);
const areaOf = ([left, top, right, bottom]) => (right - left) * (bottom - top);

/** The long side at which a photo of this size is looked at a second time; 0: it is not. */
function closerSidePx(photo) {
  const [least, most] = CLOSER_SIDES_PX;
  const sidePx = halfToEven(Math.max(photo.width, photo.height) * CLOSER_SHARE);
  return sidePx >= least ? Math.min(sidePx, most) : 0;
}

/** The large heads of the first look, and the small ones of the closer look that are not on these. */
function combine(first, closer, photoSidePx) {
  const large = first.filter((head) => longerSide(head.box) >= MIN_FIRST_HEAD * photoSidePx);
  const small = closer.filter(
    (head) => longerSide(head.box) <= MAX_CLOSER_HEAD * photoSidePx && !large.some((other) => isOn(head.box, other.box)),
  );
  return [...large, ...small];
}

/** The heads in a photo that lies on its side, in the better direction; none if upright it is as good. */
async function lookAtTurned(searched, photo, look, uprightScore) {
  const least = Math.max(MIN_TURNED_SCORE, uprightScore + TURNED_GAIN);
  const size = { width: photo.height, height: photo.width };
  const directions = [];
  for (const turns of [1, 3]) {
    const turned = quarterTurned(searched, turns);
    const [heads, others] = [await look(turned, TURNED_SIDES_PX[0], size), await look(turned, TURNED_SIDES_PX[1], size)];
    const scoreOn = ({ box }) => bestScore(others.filter((other) => isOn(other.box, box)));
    directions.push(
      heads
        .map((head) => turnedBack({ ...head, score: (head.score + scoreOn(head)) / 2 }, turns, photo))
        .filter((head) => head.score >= least),
    );
  }
  const [left, right] = directions;
  return bestScore(right) > bestScore(left) ? right : left;
}

/** A person's face with landmarks that are found in an enlarged cut of the photo, where they are. */
async function alignPerson(person, photo, look) {
  const [left, top, right, bottom] = person.box;
  const sidePx = Math.max(1, halfToEven(PERSON_CUT * longerSide(person.box)));
  const [x, y] = [halfToEven((left + right - sidePx) / 2), halfToEven((top + bottom - sidePx) / 2)];
  const middle = [sidePx / 3, sidePx / 3, (sidePx * 2) / 3, (sidePx * 2) / 3];
  const looks = [];
  for (const isMirrored of [false, true]) {
    const heads = await look(cut(photo, x, y, sidePx, isMirrored), PERSON_SIDE_PX, { width: sidePx, height: sidePx });
    const face = heads.find(({ label, box }) => label === "person" && isOn(box, middle));
    if (!face) return person;
    const points = face.landmarks;
    looks.push(isMirrored ? MIRRORED.map((row) => [sidePx - points[row][0], points[row][1]]) : points);
  }
  const landmarks = looks[0].map((point, row) => [
    (point[0] + looks[1][row][0]) / 2 + x,
    (point[1] + looks[1][row][1]) / 2 + y,
  ]);
  return { ...person, landmarks };
}

/** A square of the photo, or its mirror image; black where it lies outside. */
function cut(photo, left, top, sidePx, isMirrored) {
  const rgb = new Uint8Array(3 * sidePx * sidePx);
  for (let y = Math.max(0, -top); y < sidePx && top + y < photo.height; y++) {
    for (let x = Math.max(0, -left); x < sidePx && left + x < photo.width; x++) {
      const to = 3 * (y * sidePx + (isMirrored ? sidePx - 1 - x : x));
      const from = 3 * ((top + y) * photo.width + left + x);
      for (let c = 0; c < 3; c++) rgb[to + c] = photo.rgb[from + c];
    }
  }
  return { rgb, width: sidePx, height: sidePx };
}

/** The photo turned counterclockwise by one or three right angles. */
function quarterTurned(photo, turns) {
  const [width, height] = [photo.height, photo.width];
  const rgb = new Uint8Array(photo.rgb.length);
  for (let y = 0, to = 0; y < height; y++) {
    for (let x = 0; x < width; x++, to += 3) {
      const [fromX, fromY] = turns === 1 ? [photo.width - 1 - y, x] : [y, photo.height - 1 - x];
      const from = 3 * (fromY * photo.width + fromX);
      for (let c = 0; c < 3; c++) rgb[to + c] = photo.rgb[from + c];
    }
  }
  return { rgb, width, height };
}

/** Where a head of `quarterTurned` lies in the photo. */
function turnedBack(head, turns, { width, height }) {
  const back = ([x, y]) => (turns === 1 ? [width - y, x] : [y, height - x]);
  const [[x1, y1], [x2, y2]] = [back(head.box.slice(0, 2)), back(head.box.slice(2))];
  const box = [Math.min(x1, x2), Math.min(y1, y2), Math.max(x1, x2), Math.max(y1, y2)];
  return { ...head, box, landmarks: head.landmarks && head.landmarks.map(back) };
}

function resizeTo(photo, sidePx) {
  const scale = sidePx / Math.max(photo.width, photo.height);
  const side = (length) => Math.max(1, halfToEven(length * scale));
  return resize(photo, side(photo.width), side(photo.height));
}

/** The photo filled up with black at the right and below. */
function fillForNetwork(resized) {
  const filled = (length) => Math.max(MIN_SIDE_PX, Math.ceil(length / MULTIPLE_PX) * MULTIPLE_PX);
  const [width, height] = [filled(resized.width), filled(resized.height)];
  const rgb = new Uint8Array(3 * width * height);
  for (let y = 0; y < resized.height; y++) {
    rgb.set(resized.rgb.subarray(3 * y * resized.width, 3 * (y + 1) * resized.width), 3 * y * width);
  }
  return { rgb, width, height };
}
