/** A face of a photo to the network's crop, as src/familiar/detection/alignment.py cuts it out. */

import { halfToEven, resize, resizeCrop } from "./resize.js";

// Positions of the five landmarks in a crop of 112 px, as ArcFace (arXiv 1801.07698) has them.
const TEMPLATE_112_PX = [
  [38.2946, 51.6963],
  [73.5318, 51.5014],
  [56.0252, 71.7366],
  [41.5493, 92.3655],
  [70.7299, 92.2041],
];

/**
 * The square crop of one face: its five landmarks brought to the template, or else its box with the bundle's margin.
 * @param face as `detectHeads` of detect.js returns it
 */
export function cropFace(photo, { box, landmarks }, preprocessing) {
  if (!landmarks || preprocessing.template === "box") {
    return resizeCrop(cropBox(photo, box, preprocessing.margin), preprocessing);
  }
  const center = preprocessing.size_px / 2;
  const toTemplate = (value) =>
    center + (value * (preprocessing.size_px / 112) - center) / (1 + 2 * preprocessing.margin);
  const template = TEMPLATE_112_PX.map((point) => point.map(toTemplate));
  return warp(photo, similarityTransform(landmarks, template), preprocessing.size_px);
}

function cropBox(photo, [left, top, right, bottom], margin) {
  const [marginX, marginY] = [margin * (right - left), margin * (bottom - top)];
  const columns = [left - marginX, right + marginX].map((x) => halfToEven(clip(x, 0, photo.width)));
  const rows = [top - marginY, bottom + marginY].map((y) => halfToEven(clip(y, 0, photo.height)));
  return cut(photo, columns, rows, "the box of the face is empty");
}

/** The pixels of whole columns and rows: each [first, the one after the last]. */
function cut(photo, [left, right], [top, bottom], problem) {
  const [width, height] = [right - left, bottom - top];
  if (width <= 0 || height <= 0) throw new Error(problem);
  const rgb = new Uint8Array(3 * width * height);
  for (let y = 0; y < height; y++) {
    const from = 3 * ((top + y) * photo.width + left);
    rgb.set(photo.rgb.subarray(from, from + 3 * width), 3 * y * width);
  }
  return { rgb, width, height };
}

/**
 * [a, b, x, y]: the rotation, scale and shift from (u, v) to (a u - b v + x, b u + a v + y) that bring the points
 * `from` closest to `to` in least squares (Umeyama 1991), never a reflection.
 */
function similarityTransform(from, to) {
  const mean = (points, i) => points.reduce((sum, point) => sum + point[i], 0) / points.length;
  const [fromX, fromY, toX, toY] = [mean(from, 0), mean(from, 1), mean(to, 0), mean(to, 1)];
  let [a, b, spread] = [0, 0, 0];
  for (const [i, [u, v]] of from.entries()) {
    const [x, y, toU, toV] = [u - fromX, v - fromY, to[i][0] - toX, to[i][1] - toY];
    a += x * toU + y * toV;
    b += x * toV - y * toU;
    spread += x * x + y * y;
  }
  if (from.every(([u, v]) => u === from[0][0] && v === from[0][1]) || (a === 0 && b === 0)) {
    throw new Error("the landmarks of the face fit no face");
  }
  [a, b] = [a / spread, b / spread];
  return [a, b, toX - (a * fromX - b * fromY), toY - (b * fromX + a * fromY)];
}

/** The photo transformed and cut to a square, with black where it ends. */
function warp(photo, [a, b, x, y], size) {
  // Bilinear sampling skips pixels below half scale, so whole blocks are averaged first.
  const scale = Math.hypot(a, b);
  const step = Math.floor(clip(1.01 / scale, 1, Math.max(photo.width, photo.height)));
  const toPhoto = (u, v) => [
    (a * (u - x) + b * (v - y)) / scale ** 2,
    (a * (v - y) - b * (u - x)) / scale ** 2,
  ];
  const corners = [toPhoto(0, 0), toPhoto(size, 0), toPhoto(0, size), toPhoto(size, size)];
  const range = (i, length) => {
    const values = corners.map((corner) => corner[i]);
    const bounds = [Math.floor(Math.min(...values)) - step, Math.ceil(Math.max(...values)) + step];
    return bounds.map((bound) => clip(bound, 0, length));
  };
  const [columns, rows] = [range(0, photo.width), range(1, photo.height)];
  const part = cut(photo, columns, rows, "the landmarks of the face lie outside the photo");
  const reduced = resize(part, Math.ceil(part.width / step), Math.ceil(part.height / step));

  // From the crop to the reduced part, the center of the first pixel of each at 0: [xx, xy, x0] and [yx, yy, y0].
  const [perX, perY] = [part.width / reduced.width, part.height / reduced.height];
  const [startX, startY] = toPhoto(0.5, 0.5);
  const across = [a / scale ** 2 / perX, b / scale ** 2 / perX, (startX - columns[0]) / perX - 0.5];
  const down = [-b / scale ** 2 / perY, a / scale ** 2 / perY, (startY - rows[0]) / perY - 0.5];
  return sample(reduced, across, down, size);
}

/** OpenCV's warpAffine with INTER_LINEAR, in its whole numbers: positions in 1/1024 of a pixel, weights in 1/32. */
function sample({ rgb, width, height }, [xx, xy, x0], [yx, yy, y0], size) {
  const fixed = (value) => halfToEven(1024 * value);
  const sampled = new Uint8Array(3 * size * size);
  for (let v = 0, to = 0; v < size; v++) {
    for (let u = 0; u < size; u++, to += 3) {
      const x = (fixed(xx * u) + fixed(xy * v + x0) + 16) >> 5;
      const y = (fixed(yx * u) + fixed(yy * v + y0) + 16) >> 5;
      const [left, top, shareX, shareY] = [x >> 5, y >> 5, x & 31, y & 31];
      const sums = [512, 512, 512]; // so that cutting off rounds
      for (const [row, rowWeight] of [
        [top, 32 - shareY],
        [top + 1, shareY],
      ]) {
        if (row < 0 || row >= height) continue;
        for (const [column, columnWeight] of [
          [left, 32 - shareX],
          [left + 1, shareX],
        ]) {
          if (column < 0 || column >= width) continue;
          const from = 3 * (row * width + column);
          for (let c = 0; c < 3; c++) sums[c] += rowWeight * columnWeight * rgb[from + c];
        }
      }
      for (let c = 0; c < 3; c++) sampled[to + c] = sums[c] >> 10;
    }
  }
  return { rgb: sampled, width: size, height: size };
}

function clip(value, lowest, highest) {
  return Math.min(Math.max(value, lowest), highest);
}
