/** The bundle file, as src/familiar/embedding/bundle.py writes and checks it: a network, and behind it our sealed JSON. */

import { checkFormat, readSealed, sha256 } from "./seals.js";

const FORMAT = "familiar-bundle/1";
const METADATA_KEY = "familiar";
const METADATA_PROPS_FIELD = 14; // onnx.proto: ModelProto.metadata_props
const LENGTH_DELIMITED = 2; // protobuf wire type

/**
 * What a bundle says of itself, every byte of it checked; an Error with one line to show where that fails.
 * @param {Uint8Array} content the whole file
 */
export async function readMetadata(content, name) {
  const { network, json } = splitFields(content) ?? {};
  const metadata = json && (await readSealed(json, "metadata_sha256"));
  if (!metadata) throw new Error(`${name}: is no bundle of ours, or was cut or changed. Fetch or export it again.`);
  checkFormat(metadata, FORMAT, name, "Export or import it again.");
  if ((await sha256(network)) !== metadata.file_id) {
    throw new Error(`${name}: the network's bytes changed since it was exported. Fetch or export it again.`);
  }
  if (!metadata.preprocessing || !metadata.calibration) {
    throw new Error(`${name}: its metadata is incomplete. Export it again.`);
  }
  return metadata;
}

/** The bytes of the network and of our JSON; null where the last field is not just that. */
function splitFields(content) {
  const last = lastField(content);
  if (last?.number !== METADATA_PROPS_FIELD) return null;
  const value = lastField(last.body);
  if (!value) return null;
  // Bytes outside the JSON must be just as we write them, or a change there would go unseen.
  const key = field(1, new TextEncoder().encode(METADATA_KEY));
  const written = field(METADATA_PROPS_FIELD, [...key, ...field(2, value.body)]);
  if (!sameBytes(content.subarray(last.start), written)) return null;
  return { network: content.subarray(0, last.start), json: value.body };
}

/** Number, start and body of the last field of a protobuf message; null where it does not parse. */
function lastField(message) {
  let last = null;
  let position = 0;
  const varint = () => {
    let value = 0;
    for (let scale = 1; position < message.length && scale < 2 ** 63; scale *= 128) {
      const byte = message[position++];
      value += (byte & 0x7f) * scale;
      if (byte < 0x80) return value;
    }
    return NaN;
  };
  while (position < message.length) {
    const start = position;
    const tag = varint();
    let body = new Uint8Array();
    if (tag % 8 === 0) varint();
    else if (tag % 8 === 1) position += 8;
    else if (tag % 8 === 5) position += 4;
    else if (tag % 8 === LENGTH_DELIMITED) {
      const length = varint();
      body = message.subarray(position, position + length);
      position += length;
    } else return null;
    if (!(position <= message.length)) return null;
    last = { number: Math.floor(tag / 8), start, body };
  }
  return last;
}

/** One length-delimited protobuf field. */
function field(number, body) {
  return [...varintBytes(number * 8 + LENGTH_DELIMITED), ...varintBytes(body.length), ...body];
}

function varintBytes(value) {
  return value < 128 ? [value] : [(value & 0x7f) | 0x80, ...varintBytes(value >>> 7)];
}

function sameBytes(left, right) {
  return left.length === right.length && left.every((byte, place) => byte === right[place]);
}
