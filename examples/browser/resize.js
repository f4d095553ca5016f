/** Resizing to the network's crop, as src/familiar/photos/preprocessing.py does it, with OpenCV's two ways to the last bit. */

/** The square crop the network was trained on, of a photo that is all face. */
export function resizeCrop(photo, preprocessing) {
  const size = preprocessing.size_px;
  if (preprocessing.resize === "stretch") return resize(photo, size, size);
  if (preprocessing.resize !== "center_crop")
    throw new Error(`unknown rule of resizing: ${preprocessing.resize}`);
  const scale = preprocessing.resize_px / Math.min(photo.width, photo.height);
  const side = (length) => Math.max(size, halfToEven(length * scale));
  const resized = resize(photo, side(photo.width), side(photo.height));
  const [left, top] = [Math.floor((resized.width - size) / 2), Math.floor((resized.height - size) / 2)];
  const rgb = new Uint8Array(3 * size * size);
  for (let y = 0; y < size; y++) {
    const from = 3 * ((top + y) * resized.width + left);
    rgb.set(resized.rgb.subarray(from, from + 3 * size), 3 * y * size);
  }
  return { rgb, width: size, height: size };
}

/** Area interpolation where the photo gets smaller, linear where it gets larger. */
export function resize(photo, width, height) {
  if (photo.width === width && photo.height === height) return photo;
  if (width <= photo.width && height <= photo.height) return shrink(photo, width, height);
  // Wider but lower, or the other way about: OpenCV's area interpolation is then a linear one of its own.
  const asArea = width * height < photo.width * photo.height;
  return interpolate(photo, width, height, asArea ? areaTap : linearTap);
}

/** INTER_AREA: each new pixel is the mean over its area among the old ones. Rounded where OpenCV rounds. */
function shrink({ rgb, width: fromWidth, height: fromHeight }, width, height) {
  const whole = fromWidth % width === 0 && fromHeight % height === 0;
  const [columns, rows] = [overlaps(fromWidth, width, whole), overlaps(fromHeight, height, whole)];
  const area = (fromWidth / width) * (fromHeight / height);
  const factor = whole ? Math.fround(1 / area) : 1;
  // Writing rounds halves to the even neighbor, as OpenCV does; but those of 2 x 2 pixels it rounds up.
  const halfUp = fromWidth === 2 * width && fromHeight === 2 * height ? 1 / 8 : 0;
  const shrunk = new Uint8ClampedArray(3 * width * height);
  const [across, mean] = [new Float32Array(3 * width), new Float32Array(3 * width)];
  for (let y = 0; y < height; y++) {
    mean.fill(0);
    for (const [i, rowShare] of rows[y].shares.entries()) {
      const row = 3 * fromWidth * (rows[y].first + i);
      for (let x = 0; x < width; x++) {
        const { first, shares } = columns[x];
        let [red, green, blue] = [0, 0, 0];
        // Most of the time of a large photo is spent here; plain loops take half that of arrays of pairs.
        for (let k = 0, from = row + 3 * first; k < shares.length; k++, from += 3) {
          red = Math.fround(red + Math.fround(shares[k] * rgb[from]));
          green = Math.fround(green + Math.fround(shares[k] * rgb[from + 1]));
          blue = Math.fround(blue + Math.fround(shares[k] * rgb[from + 2]));
        }
        across[3 * x] = red;
        across[3 * x + 1] = green;
        across[3 * x + 2] = blue;
      }
      for (let x = 0; x < mean.length; x++) mean[x] += Math.fround(rowShare * across[x]);
    }
    for (let i = 0; i < mean.length; i++) shrunk[3 * y * width + i] = Math.fround(mean[i] * factor) + halfUp;
  }
  return { rgb: shrunk, width, height };
}

/** For each new pixel of a line the first old one it covers, and the share of each: 1 where all are covered whole. */
function overlaps(from, to, whole) {
  const scale = 1 / (to / from);
  return Array.from({ length: to }, (_, place) => {
    const [start, end] = [place * scale, Math.min((place + 1) * scale, from)];
    const covered = [];
    for (let old = Math.floor(start); old < end; old++) {
      const length = Math.min(end, old + 1) - Math.max(start, old);
      if (length > 1e-3) covered.push([old, whole ? 1 : length / (end - start)]); // OpenCV's bound
    }
    return { first: covered[0][0], shares: Float32Array.from(covered, ([, share]) => share) };
  });
}

/** INTER_LINEAR in OpenCV's whole numbers: 11 bits of weight, and where its products are cut off. */
function interpolate({ rgb, width: fromWidth, height: fromHeight }, width, height, tap) {
  const columns = Array.from({ length: width }, (_, x) => weights(tap(x, fromWidth, width), fromWidth, true));
  const rows = Array.from({ length: height }, (_, y) =>
    weights(tap(y, fromHeight, height), fromHeight, false),
  );
  const enlarged = new Uint8ClampedArray(3 * width * height);
  for (let y = 0; y < height; y++) {
    const [upper, lower, upperWeight, lowerWeight] = rows[y];
    for (let x = 0; x < width; x++) {
      const [left, right, leftWeight, rightWeight] = columns[x];
      for (let channel = 0; channel < 3; channel++) {
        const across = (row) =>
          rgb[3 * (row * fromWidth + left) + channel] * leftWeight +
          rgb[3 * (row * fromWidth + right) + channel] * rightWeight;
        enlarged[3 * (y * width + x) + channel] =
          (((upperWeight * (across(upper) >> 4)) >> 16) + ((lowerWeight * (across(lower) >> 4)) >> 16) + 2) >>
          2;
      }
    }
  }
  return { rgb: enlarged, width, height };
}

/** [first old pixel, the second's share]. */
function linearTap(place, from, to) {
  const center = Math.fround((place + 0.5) * (1 / (to / from)) - 0.5);
  const first = Math.floor(center);
  return [first, Math.fround(center - first)];
}

function areaTap(place, from, to) {
  const first = Math.floor(place * (1 / (to / from)));
  const share = Math.fround(place + 1 - (first + 1) * (to / from));
  return [first, share <= 0 ? 0 : Math.fround(share - Math.floor(share))];
}

/** Both old pixels and their weights. At an edge OpenCV takes the last pixel alone, but the last row twice. */
function weights([first, share], length, alone) {
  const inside = (place) => Math.min(Math.max(place, 0), length - 1);
  const second = alone && (first < 0 || first >= length - 1) ? 0 : share;
  return [
    inside(first),
    inside(first + 1),
    halfToEven(Math.fround(1 - second) * 2048),
    halfToEven(second * 2048),
  ];
}

/** Rounded as Python and OpenCV do: halves to the even neighbor. */
export function halfToEven(value) {
  const up = Math.floor(value + 0.5);
  return up - value === 0.5 && up % 2 ? up - 1 : up;
}
