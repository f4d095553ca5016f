/** SHA-256, and JSON sealed with it: one of its fields is the digest of the text without that field. */

/** The digest in hexadecimal. */
export async function sha256(bytes) {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/**
 * The value of sealed JSON; null where it is none, or was changed.
 * @param {Uint8Array} bytes as Python writes them: keys in order, no spaces
 * @param {string} seal the name of the field with the digest
 */
export async function readSealed(bytes, seal) {
  if (!globalThis.crypto?.subtle) {
    throw new Error(
      "This page checks bundles with SHA-256, which browsers offer on https:// and localhost only.",
    );
  }
  try {
    // As strict as Python: no bytes that are no text, and none that are left out of it.
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
    const value = JSON.parse(text);
    const rest = text.replace(`"${seal}":"${value[seal]}",`, "");
    return (await sha256(new TextEncoder().encode(rest))) === value[seal] ? value : null;
  } catch {
    return null;
  }
}
