/** JSON sealed with SHA-256: one of its fields is the digest of the text without that field, another its format. */

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

/**
 * An Error with one line to show unless sealed JSON has the mark of its format, as explain_other_format of
 * src/familiar/core/format_marks.py says it.
 * @param {string} expected name and version: "familiar-bundle/1"
 */
export function checkFormat(stored, expected, name, remedy) {
  const found = stored.format;
  if (found === expected) return;
  if (found === undefined) throw new Error(`${name}: was made by a development version of familiar. ${remedy}`);
  const [kind, version] = expected.split("/");
  const newer = String(found).startsWith(`${kind}/`) && Number(found.slice(kind.length + 1)) > Number(version);
  const what = newer ? `was made by a newer version of familiar (${found})` : `is of format ${found}`;
  throw new Error(`${name}: ${what}; this page reads ${expected}. Take this page and the file from one version.`);
}
