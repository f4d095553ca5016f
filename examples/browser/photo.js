/** A file to upright RGB pixels, transparency on white: src/familiar/photos/decoding.py in a browser. */

import { decodeJpeg, orientation } from "./jpeg.js";

const MAX_PIXELS = 100_000_000; // as in Python
const STRIP_PX = 256; // rows read at once: a whole large photo is more canvas than some phones have
const UPRIGHT = {
  // by EXIF orientation: [swap rows and columns first?, mirror x?, mirror y?]
  1: [false, false, false],
  2: [false, true, false],
  3: [false, true, true],
  4: [false, false, true],
  5: [true, false, false],
  6: [true, true, false],
  7: [true, true, true],
  8: [true, false, true],
};

/** {rgb, width, height}. An Error where it is no photo, or none that this browser reads. */
export async function loadPhoto(file, minSidePx) {
  const bytes = new Uint8Array(await file.arrayBuffer());
  if (!bytes.length) throw new Error("the file is empty");
  const stored = await decodeJpeg(bytes, minSidePx, MAX_PIXELS);
  return stored ? upright(stored, orientation(bytes)) : decodeByBrowser(file);
}

function upright(stored, exifOrientation) {
  if (exifOrientation === 1) return stored;
  const [swap, mirrorX, mirrorY] = UPRIGHT[exifOrientation];
  const [width, height] = swap ? [stored.height, stored.width] : [stored.width, stored.height];
  const rgb = new Uint8Array(stored.rgb.length);
  for (let y = 0, to = 0; y < height; y++) {
    const fromY = mirrorY ? height - 1 - y : y;
    for (let x = 0; x < width; x++, to += 3) {
      const fromX = mirrorX ? width - 1 - x : x;
      const from = 3 * (swap ? fromX * stored.width + fromY : fromY * stored.width + fromX);
      for (let c = 0; c < 3; c++) rgb[to + c] = stored.rgb[from + c];
    }
  }
  return { rgb, width, height };
}

async function decodeByBrowser(file) {
  let bitmap;
  try {
    // Color profiles are left aside, as Python leaves them.
    bitmap = await createImageBitmap(file, { imageOrientation: "from-image", colorSpaceConversion: "none" });
  } catch {
    throw new Error("no photo, damaged, or of a format this browser does not read");
  }
  const { width, height } = bitmap;
  if (width * height > MAX_PIXELS) throw new Error(`${width} x ${height} px are too many: scale it down`);
  const rgb = new Uint8Array(3 * width * height);
  const context = new OffscreenCanvas(width, STRIP_PX).getContext("2d", { willReadFrequently: true });
  context.fillStyle = "white";
  for (let top = 0, to = 0; top < height; top += STRIP_PX) {
    context.fillRect(0, 0, width, STRIP_PX);
    context.drawImage(bitmap, 0, -top);
    const rgba = context.getImageData(0, 0, width, Math.min(STRIP_PX, height - top)).data;
    for (let from = 0; from < rgba.length; from += 4, to += 3) {
      for (let c = 0; c < 3; c++) rgb[to + c] = rgba[from + c];
    }
  }
  bitmap.close();
  return { rgb, width, height };
}
