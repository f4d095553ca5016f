/**
 * JPEGs by libjpeg-turbo, as Python decodes them: the same pixels in every browser, and those of large photos at 1/2,
 * 1/4 or 1/8 of their size, which no browser's own decoder offers and no scaling afterwards equals.
 */

const CMYK = 3; // TurboJPEG's TJCS_CMYK; above it YCCK
const SCALES = [8, 4, 2];
const [APP1, START_OF_SCAN, EXIF] = [0xe1, 0xda, 0x45786966]; // markers, and "Exif"

const compiled = fetch(new URL("node_modules/@cwasm/jpeg-turbo/jpeg-turbo.wasm", import.meta.url))
  .then((response) => (response.ok ? response.arrayBuffer() : Promise.reject(new Error(response.statusText))))
  .then((code) => WebAssembly.compile(code));

/** Waits for the decoder, so that nothing is fetched later. */
export async function ready() {
  await compiled;
}

/**
 * Pixels as they are stored, not turned upright, the short side not below `minSidePx` unless the photo's is.
 * null for what is no JPEG, is damaged, has more than `maxPixels`, or colors that only the browser converts.
 * @param {Uint8Array} bytes the whole file
 */
export async function decodeJpeg(bytes, minSidePx, maxPixels) {
  if (bytes[0] !== 0xff || bytes[1] !== 0xd8 || bytes[2] !== 0xff) return null;
  const turbo = await start();
  try {
    const file = turbo.malloc(bytes.length);
    new Uint8Array(turbo.memory.buffer, file, bytes.length).set(bytes);
    const decoder = turbo.tjInitDecompress();
    const header = turbo.malloc(16);
    const told = [0, 4, 8, 12].map((offset) => header + offset); // width, height, subsampling, colors
    if (turbo.tjDecompressHeader3(decoder, file, bytes.length, ...told)) return null;
    const [width, height, , colors] = new Int32Array(turbo.memory.buffer, header, 4);
    if (colors >= CMYK || width * height > maxPixels) return null;
    const fits = (scale) => Math.min(Math.floor(width / minSidePx), Math.floor(height / minSidePx)) >= scale;
    const scale = SCALES.find(fits) ?? 1;
    const [w, h] = [Math.ceil(width / scale), Math.ceil(height / scale)];
    const pixels = turbo.malloc(3 * w * h);
    // It reduces by itself to what fits into the size asked for. Pixel format 0 is RGB.
    if (turbo.tjDecompress2(decoder, file, bytes.length, pixels, w, 3 * w, h, 0, 0)) return null;
    return { width: w, height: h, rgb: new Uint8Array(turbo.memory.buffer, pixels, 3 * w * h).slice() };
  } catch {
    return null; // libjpeg's own way out of a broken file, see `longjmp`
  }
}

/** The EXIF orientation, 1 to 8; 1 where none is told. */
export function orientation(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  try {
    let at = 2; // of a segment: its marker, two bytes of length, what it holds
    while (view.getUint8(at) === 0xff && view.getUint8(at + 1) !== START_OF_SCAN) {
      const isExif = view.getUint8(at + 1) === APP1 && view.getUint32(at + 4) === EXIF;
      if (isExif) return orientationOfTiff(view, at + 10);
      at += 2 + view.getUint16(at + 2);
    }
  } catch (error) {
    if (!(error instanceof RangeError)) throw error; // broken metadata does not spoil a good photo
  }
  return 1;
}

function orientationOfTiff(view, start) {
  const little = view.getUint8(start) === 0x49; // "I"
  const directory = start + view.getUint32(start + 4, little);
  for (let entry = 0; entry < view.getUint16(directory, little); entry++) {
    const at = directory + 2 + 12 * entry;
    if (view.getUint16(at, little) === 0x0112) {
      const told = view.getUint16(at + 8, little);
      return told >= 1 && told <= 8 ? told : 1;
    }
  }
  return 1;
}

/** A decoder of its own for each photo: what one leaves behind goes with it. */
async function start() {
  const refuse = () => {
    throw new Error("libjpeg-turbo gave up");
  };
  const { exports } = await WebAssembly.instantiate(await compiled, {
    env: { setjmp: () => 0, longjmp: refuse },
    wasi_snapshot_preview1: {
      environ_sizes_get: () => 0,
      ...{ environ_get: refuse, proc_exit: refuse, fd_close: refuse, fd_seek: refuse, fd_write: refuse },
    },
  });
  return exports;
}
