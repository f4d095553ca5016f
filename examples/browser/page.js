/** What is shown and pressed. All work is done in turn, one photo after the other. */

import { readMetadata } from "./bundle.js";
import { group, probabilitySame, similarity } from "./compare.js";
import { ready as jpegReady } from "./jpeg.js";
import { loadPhoto } from "./photo.js";
import { resizeCrop } from "./resize.js";

const DEFAULT_BUNDLE = "model.onnx"; // taken where it lies beside the page

const byId = (id) => document.getElementById(id);
const photos = []; // {file, url, embedding, readMs, networkMs, problem}, the last four of the bundle in use
let bundle = null; // {name, bytes, metadata, embed}
let chosen = null; // the photo compared with the others
let turn = Promise.resolve();

/** Runs `job` when all before it are done; what goes wrong is shown, and stops nothing else. */
function inTurn(job) {
  turn = turn.then(job).catch((error) => say(error.message, true));
}

async function start() {
  const libraries = [import("./network.js").then((network) => network.ready()), jpegReady()];
  try {
    await Promise.all(libraries);
  } catch {
    throw new Error(
      "ONNX Runtime Web or the JPEG decoder is not here: run `npm ci` in the folder of this page.",
    );
  }
  const response = await fetch(DEFAULT_BUNDLE).catch(() => null);
  if (!response?.ok) return say("Choose a bundle to begin.");
  await openBundle(DEFAULT_BUNDLE, new Uint8Array(await response.arrayBuffer()));
}

async function openBundle(name, bytes) {
  say(`Opening ${name}…`);
  const metadata = await readMetadata(bytes, name);
  const { openNetwork } = await import("./network.js");
  const embed = await openNetwork(bytes, metadata.preprocessing.size_px).catch((error) => {
    throw new Error(`${name}: ONNX Runtime Web cannot open it (${error.message})`);
  });
  const before = bundle;
  bundle = { name, bytes: bytes.length, metadata, embed };
  showBundle();
  // Vectors of two spaces do not compare, and those of two networks in one space are not the same: all anew.
  for (const photo of photos) Object.assign(photo, { embedding: null, problem: null });
  const otherSpace = before && before.metadata.space_id !== metadata.space_id;
  await embedPhotos(otherSpace ? "This bundle is of another space: all photos were embedded again." : "");
}

async function addPhotos(files) {
  photos.push(
    ...files.map((file) => ({ file, url: URL.createObjectURL(file), embedding: null, problem: null })),
  );
  if (bundle) await embedPhotos();
  else say(`${count(photos.length, "photo")} waiting: choose a bundle.`);
}

/** Embeds the photos that are not yet. */
async function embedPhotos(remark = "") {
  const { metadata, embed } = bundle;
  const { size_px, resize_px } = metadata.preprocessing;
  const waiting = photos.filter((photo) => !photo.embedding && !photo.problem);
  for (const [done, photo] of waiting.entries()) {
    showProgress(done, waiting.length);
    try {
      const started = performance.now();
      const pixels = await loadPhoto(photo.file, Math.max(size_px, resize_px));
      const crop = resizeCrop(pixels, metadata.preprocessing);
      const read = performance.now();
      photo.embedding = await embed(crop.rgb);
      Object.assign(photo, { readMs: read - started, networkMs: performance.now() - read });
    } catch (error) {
      photo.problem = error.message;
    }
    await new Promise((resolve) => setTimeout(resolve)); // lets the page be drawn and used in between
  }
  showProgress(0, 0);
  showProblems();
  showGroups();
  showComparison();
  const embedded = embeddedPhotos();
  const typical = (of) => milliseconds(embedded.map(of).sort((a, b) => a - b)[embedded.length >> 1]);
  const speed = embedded.length
    ? `, typically ${typical((photo) => photo.readMs + photo.networkMs)} each, ` +
      `of which the network ${typical((photo) => photo.networkMs)}`
    : "";
  say(
    photos.length
      ? `${count(embedded.length, "photo")} embedded${speed}. ${remark}`
      : "Ready: choose photos.",
  );
}

function embeddedPhotos() {
  return photos.filter((photo) => photo.embedding);
}

function groupsNow() {
  const embedded = embeddedPhotos();
  const threshold = bundle.metadata.calibration[byId("threshold").value].similarity;
  const places = group(
    embedded.map((photo) => photo.embedding),
    threshold,
  );
  return places.map((of) => of.map((place) => embedded[place])).sort((a, b) => b.length - a.length);
}

function compare(left, right) {
  const { calibration } = bundle.metadata;
  const alike = similarity(left.embedding, right.embedding);
  const same = calibration.slope === null ? null : alike >= calibration.balanced.similarity;
  return { similarity: alike, probability: probabilitySame(alike, calibration), same };
}

/** Everything that was found, as one JSON file. */
function save() {
  const { space_id, file_id, precision } = bundle.metadata;
  const embedded = embeddedPhotos();
  const results = {
    bundle: { name: bundle.name, space_id, file_id, precision },
    photos: embedded.map((photo) => ({
      name: photo.file.name,
      embedding: Array.from(photo.embedding),
      read_ms: photo.readMs,
      network_ms: photo.networkMs,
    })),
    groups: groupsNow().map((members) => members.map((photo) => embedded.indexOf(photo))),
    skipped: photos
      .filter((photo) => photo.problem)
      .map(({ file, problem }) => ({ name: file.name, problem })),
  };
  const url = URL.createObjectURL(new Blob([JSON.stringify(results)], { type: "application/json" }));
  element("a", { href: url, download: "familiar.json" }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

function showBundle() {
  const { metadata, bytes, name } = bundle;
  const { size_px } = metadata.preprocessing;
  const { calibration, results } = metadata;
  byId("bundle-name").textContent = name;
  const facts = {
    Network: `${metadata.network}, ${metadata.precision}`,
    Size: `${bytes.toLocaleString("en")} bytes`,
    Crops: `${size_px} × ${size_px} px`,
    Embedding: `${metadata.embedding_dim} components`,
    Space: metadata.space_id.slice(0, 12),
    Measured: results.auc ? `ROC AUC ${results.auc.toFixed(3)} on ${results.on}` : "nothing",
    License: metadata.license,
  };
  const rows = Object.entries(facts).map(([term, fact]) => [
    element("dt", {}, term),
    element("dd", {}, fact),
  ]);
  byId("facts").replaceChildren(...rows.flat());
  byId("warning").hidden = calibration.slope !== null;
  byId("warning").textContent =
    "This bundle was never calibrated: it gives similarities, but no verdict and no probability, and the threshold of " +
    "the groups is a guess.";
}

function showProgress(done, all) {
  const progress = byId("progress");
  progress.hidden = !all;
  if (all) Object.assign(progress, { max: all, value: done });
  if (all && !done) say(`Embedding ${count(all, "photo")}…`);
}

function showProblems() {
  const left = photos.filter((photo) => photo.problem);
  byId("problems").replaceChildren(
    ...left.map(({ file, problem }) =>
      element("li", {}, element("b", {}, file.name), ` left out: ${problem}`),
    ),
  );
}

function showGroups() {
  byId("results").hidden = !embeddedPhotos().length;
  if (byId("results").hidden) return;
  const groups = groupsNow();
  const alone = groups.filter((members) => members.length === 1).flat();
  const together = groups.filter((members) => members.length > 1);
  const threshold = bundle.metadata.calibration[byId("threshold").value].similarity;
  byId("grouping").textContent =
    "The two groups whose mean vectors are most alike become one, as long as they are at least " +
    `${threshold.toFixed(3)} alike: centroid linkage, as familiar.neighbors.clustering.`;
  byId("groups").replaceChildren(
    ...together.map((members, place) => showGroup(`Group ${place + 1}: ${members.length} photos`, members)),
    ...(alone.length ? [showGroup(`Like no other: ${count(alone.length, "photo")}`, alone)] : []),
  );
}

function showGroup(title, members) {
  return element(
    "div",
    { className: "group" },
    element("h3", {}, title),
    element("ul", {}, ...members.map(tile)),
  );
}

function tile(photo) {
  const took = element("small", {}, milliseconds(photo.readMs + photo.networkMs));
  const look = { type: "button", className: "tile", ariaPressed: String(photo === chosen) };
  const button = element("button", look, picture(photo), element("span", {}, photo.file.name), took);
  button.addEventListener("click", () => {
    chosen = photo;
    for (const other of document.querySelectorAll(".tile")) other.ariaPressed = String(other === button);
    showComparison();
    byId("comparison").scrollIntoView({ block: "nearest" });
  });
  return element("li", {}, button);
}

function showComparison() {
  const others = byId("others");
  others.hidden = !chosen?.embedding;
  if (others.hidden) {
    byId("comparing").textContent = "Choose a photo above to compare it with all others.";
    return;
  }
  const { calibration } = bundle.metadata;
  const fitted = calibration.slope !== null;
  byId("comparing").textContent = fitted
    ? `${chosen.file.name} and each of the others: the same individual from a similarity of ` +
      `${calibration.balanced.similarity.toFixed(3)} on, the balanced threshold. ` +
      "The probability is for when both answers were equally likely beforehand."
    : `${chosen.file.name} and each of the others. No verdicts: this bundle was never calibrated.`;
  const found = embeddedPhotos()
    .filter((photo) => photo !== chosen)
    .map((photo) => [photo, compare(chosen, photo)]);
  found.sort(([, left], [, right]) => right.similarity - left.similarity);
  others.tBodies[0].replaceChildren(...found.map(([photo, answer]) => showAnswer(photo, answer)));
}

function showAnswer(photo, { similarity, probability, same }) {
  const name = element("div", {}, picture(photo), element("span", {}, photo.file.name));
  const verdict = same === null ? "none" : same ? "same" : "different";
  return element(
    "tr",
    { className: verdict },
    element("th", { scope: "row" }, name),
    element("td", {}, similarity.toFixed(3)),
    element("td", {}, probability === null ? "none" : `${(100 * probability).toFixed(1)} %`),
    element("td", {}, verdict),
  );
}

function picture(photo) {
  return element("img", { src: photo.url, alt: "", loading: "lazy", decoding: "async" });
}

function say(text, wrong = false) {
  byId("status").textContent = text;
  byId("status").classList.toggle("wrong", wrong);
}

function element(tag, properties, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

function count(number, thing) {
  return `${number} ${thing}${number === 1 ? "" : "s"}`;
}

function milliseconds(value) {
  return `${value.toFixed(value < 10 ? 1 : 0)} ms`;
}

/** Bundles and photos, however they came. */
function take(files) {
  const isBundle = (file) => file.name.toLowerCase().endsWith(".onnx");
  for (const file of files.filter(isBundle)) {
    inTurn(async () => openBundle(file.name, new Uint8Array(await file.arrayBuffer())));
  }
  const pictures = files.filter((file) => !isBundle(file));
  if (pictures.length) inTurn(() => addPhotos(pictures));
}

for (const input of [byId("choose-bundle"), byId("choose-photos")]) {
  input.addEventListener("change", () => {
    take([...input.files]);
    input.value = ""; // so that the same file can be chosen again
  });
}
document.addEventListener("dragover", (event) => event.preventDefault());
document.addEventListener("drop", (event) => {
  event.preventDefault();
  take([...event.dataTransfer.files]);
});
byId("threshold").addEventListener("change", showGroups);
byId("save").addEventListener("click", save);
inTurn(start);
