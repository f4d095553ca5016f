/** What is shown and pressed. All work is done in turn, one photo after the other. */

import { readMetadata } from "./bundle.js";
import { group, verify } from "./compare.js";
import { DETECTORS } from "./detect.js";
import { cropUrl, embedHeads, embedWholePhoto } from "./faces.js";
import { ready as jpegReady } from "./jpeg.js";

const DEFAULT_BUNDLE = "model.onnx"; // taken where it lies beside the page
const DETECTOR_FILE = "heads.onnx"; // fetched when the page loads: later it may be offline
const PLURALS = { cat: "cats", dog: "dogs", person: "people" };

const byId = (id) => document.getElementById(id);
const photos = []; // {file, url, faces, problem}; `faces` are of the bundle in use, as faces.js makes them
let bundle = null; // {name, bytes, metadata, embed}
const detector = { content: null, network: null, problem: "" }; // heads.onnx, opened when a bundle asks for it
let chosen = null; // the face compared with the others
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
  detector.content = await fetchOptional(DETECTOR_FILE);
  const content = await fetchOptional(DEFAULT_BUNDLE);
  if (content) await useBundle(DEFAULT_BUNDLE, content);
  else say("Choose a bundle to begin.");
}

/** A file that lies beside the page; null where there is none. */
async function fetchOptional(name) {
  const response = await fetch(name).catch(() => null);
  return response?.ok ? new Uint8Array(await response.arrayBuffer()) : null;
}

async function openBundle(name, bytes) {
  say(`Opening ${name}…`);
  const metadata = await readMetadata(bytes, name);
  const { openNetwork } = await import("./network.js");
  const embed = await openNetwork(bytes, metadata).catch((error) => {
    throw new Error(`${name}: ONNX Runtime Web cannot open it (${error.message})`);
  });
  return { name, bytes: bytes.length, metadata, embed };
}

async function useBundle(name, bytes) {
  const next = await openBundle(name, bytes);
  if (DETECTORS[next.metadata.detector]) await openDetector();
  // Vectors of two spaces do not compare, and those of two networks in one space are not the same: all anew.
  const otherSpace = bundle && bundle.metadata.space_id !== next.metadata.space_id;
  bundle = next;
  showBundle();
  await embedAnew(otherSpace ? "This bundle is of another space: all photos were embedded again." : "");
}

/** Opens heads.onnx once; where that fails, `detector.problem` says why and what helps. */
async function openDetector() {
  if (detector.network) return;
  const remedy =
    `Copy src/familiar/detection/${DETECTOR_FILE} into the folder of this page and load the page again. ` +
    "Until then, photos are taken whole.";
  if (!detector.content) {
    detector.problem = `${DETECTOR_FILE}, the network that finds heads, is not beside this page. ${remedy}`;
    return;
  }
  const { openSession } = await import("./network.js");
  try {
    detector.network = await openSession(detector.content, true);
  } catch (error) {
    detector.problem = `${DETECTOR_FILE}: ONNX Runtime Web cannot open it (${error.message}). ${remedy}`;
  }
}

/** Which heads to look for; null where photos are taken whole. */
function searchLabels() {
  const labels = DETECTORS[bundle.metadata.detector];
  return labels && detector.network && !byId("crops").checked ? labels : null;
}

async function addPhotos(files) {
  photos.push(...files.map((file) => ({ file, url: URL.createObjectURL(file), faces: null, problem: null })));
  if (bundle) await embedPhotos();
  else say(`${count(photos.length, "photo")} waiting: choose a bundle.`);
}

/** Embeds all photos, those too that are already. */
async function embedAnew(remark = "") {
  for (const photo of photos) {
    for (const face of photo.faces ?? []) {
      if (face.url !== photo.url) URL.revokeObjectURL(face.url);
    }
    Object.assign(photo, { faces: null, problem: null });
  }
  chosen = null;
  showGroups(); // none
  await embedPhotos(remark);
}

/** Embeds the faces of the photos that are not yet. */
async function embedPhotos(remark = "") {
  const waiting = photos.filter((photo) => !photo.faces && !photo.problem);
  for (const [done, photo] of waiting.entries()) {
    showProgress(done, waiting.length);
    try {
      photo.faces = await embedFaces(photo);
    } catch (error) {
      photo.problem = error.message;
    }
    await new Promise((resolve) => setTimeout(resolve)); // lets the page be drawn and used in between
  }
  showProgress(0, 0);
  showProblems();
  showGroups();
  showComparison();
  const faces = embeddedFaces();
  say(photos.length ? `${countFaces(faces)} embedded${speed(faces)}. ${remark}` : "Ready: choose photos.");
}

async function embedFaces(photo) {
  const labels = searchLabels();
  if (!labels) return [{ ...(await embedWholePhoto(photo.file, bundle)), photo, url: photo.url }];
  const heads = await embedHeads(photo.file, bundle, detector.network, labels);
  if (!heads.length) {
    throw new Error(`no head of a ${listed(labels, "disjunction")} found. Choose “Photos are crops already” if it is one.`);
  }
  return Promise.all(
    heads.map(async ({ crop, ...head }) => ({ ...head, photo, url: crop ? await cropUrl(crop) : photo.url })),
  );
}

/** Words as "one, two and three", or "or". */
function listed(words, type) {
  return new Intl.ListFormat("en-GB", { type }).format(words);
}

/** Where the time went: medians, in words. */
function speed(faces) {
  if (!faces.length) return "";
  const typical = (time) => milliseconds(faces.map(time).sort((a, b) => a - b)[faces.length >> 1]);
  const network = typical((face) => face.networkMs);
  if (!faces[0].label) {
    return `, typically ${typical((face) => face.readMs + face.networkMs)} each, of which the network ${network}`;
  }
  const [read, detect] = [typical((face) => face.readMs), typical((face) => face.detectMs)];
  return `, typically ${read} to read a photo, ${detect} to find its heads, ${network} to embed one`;
}

function embeddedFaces() {
  return photos.flatMap((photo) => photo.faces ?? []).filter((face) => !face.problem);
}

/** The photos and the faces that have no embedding: {name, problem}. */
function problemsNow() {
  return photos.flatMap(({ file, faces, problem }) =>
    problem
      ? [{ name: file.name, problem }]
      : (faces ?? [])
          .filter((face) => face.problem)
          .map((face) => ({ name: nameOf(face), problem: face.problem })),
  );
}

/** Faces in groups, the largest first. */
function groupsNow() {
  const faces = embeddedFaces();
  const embeddings = faces.map((face) => face.embedding);
  const groups = group(embeddings, thresholdNow()).map((places) => places.map((place) => faces[place]));
  return groups.sort((a, b) => b.length - a.length);
}

function thresholdNow() {
  return bundle.metadata.calibration[byId("threshold").value].similarity;
}

/** Everything that was found, as one JSON file. */
function save() {
  const embedded = embeddedFaces();
  const { space_id, file_id, precision, detector } = bundle.metadata;
  const results = {
    bundle: { name: bundle.name, space_id, file_id, precision, detector },
    labels: searchLabels(), // null: photos were taken whole, and have no boxes
    faces: embedded.map((face) => ({
      photo: face.photo.file.name,
      box_xyxy_px: face.box,
      label: face.label,
      score: face.score,
      embedding: Array.from(face.embedding),
      read_ms: face.readMs,
      detect_ms: face.detectMs,
      network_ms: face.networkMs,
    })),
    groups: groupsNow().map((members) => members.map((face) => embedded.indexOf(face))),
    skipped: problemsNow(),
  };
  const url = URL.createObjectURL(new Blob([JSON.stringify(results)], { type: "application/json" }));
  element("a", { href: url, download: "familiar.json" }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

function showBundle() {
  const { name, bytes, metadata } = bundle;
  const { preprocessing, calibration, results } = metadata;
  byId("bundle-name").textContent = name;
  const facts = {
    Network: `${metadata.network}, ${metadata.precision}`,
    Size: `${bytes.toLocaleString("en")} bytes`,
    Crops: `${preprocessing.size_px} × ${preprocessing.size_px} px`,
    Detector: metadata.detector,
    Embedding: `${metadata.embedding_dim} components`,
    Space: metadata.space_id.slice(0, 12),
    Measured: results.auc ? `ROC AUC ${results.auc.toFixed(3)} on ${results.on}` : "nothing",
    License: metadata.license,
  };
  const rows = Object.entries(facts).map(([term, fact]) => [element("dt", {}, term), element("dd", {}, fact)]);
  byId("facts").replaceChildren(...rows.flat());
  byId("warning").hidden = calibration.slope !== null;
  byId("warning").textContent =
    "This bundle was never calibrated: it gives similarities, but no verdict and no probability, and the threshold of " +
    "the groups is a guess.";
  showDetector();
}

/** Says whether heads are looked for, and if not, why. */
function showDetector() {
  const warning = detectorWarning();
  byId("detector-warning").hidden = !warning;
  byId("detector-warning").textContent = warning;
  byId("crops-choice").hidden = !(DETECTORS[bundle.metadata.detector] && detector.network);
  const labels = searchLabels();
  byId("detection").textContent = labels
    ? `This page looks for heads of ${listed(labels.map((label) => PLURALS[label]), "conjunction")}. Each becomes an entry of its own, numbered from the left of its photo.`
    : "Each photo is taken whole: cut the faces out first.";
}

function detectorWarning() {
  const name = bundle.metadata.detector;
  if (DETECTORS[name]) return detector.problem;
  if (name === "none") return "";
  return (
    `This bundle takes faces that the detector “${name}” finds. It does not exist in a browser: photos are taken ` +
    "whole."
  );
}

function showProgress(done, all) {
  const progress = byId("progress");
  progress.hidden = !all;
  if (all) Object.assign(progress, { max: all, value: done });
  if (all && !done) say(`Embedding ${count(all, "photo")}…`);
}

function showProblems() {
  byId("problems").replaceChildren(
    ...problemsNow().map(({ name, problem }) => element("li", {}, element("b", {}, name), ` left out: ${problem}`)),
  );
}

function showGroups() {
  byId("results").hidden = !embeddedFaces().length;
  if (byId("results").hidden) return;
  const groups = groupsNow();
  const alone = groups.filter((members) => members.length === 1).flat();
  const together = groups.filter((members) => members.length > 1);
  byId("grouping").textContent =
    "The two groups whose mean vectors are most alike become one, as long as they are at least " +
    `${thresholdNow().toFixed(3)} alike: centroid linkage, as familiar.neighbors.clustering.`;
  byId("groups").replaceChildren(
    ...together.map((members, place) => showGroup(`Group ${place + 1}: ${countFaces(members)}`, members)),
    ...(alone.length ? [showGroup(`Like no other: ${countFaces(alone)}`, alone)] : []),
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

function tile(face) {
  const small = element("small", {}, describe(face) || milliseconds(face.readMs + face.networkMs));
  const look = { type: "button", className: "tile", ariaPressed: String(face === chosen) };
  const button = element("button", look, picture(face), element("span", {}, face.photo.file.name), small);
  button.addEventListener("click", () => {
    chosen = face;
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
    byId("comparing").textContent = "Choose one above to compare it with all others.";
    return;
  }
  const { calibration } = bundle.metadata;
  const fitted = calibration.slope !== null;
  byId("comparing").textContent = fitted
    ? `${nameOf(chosen)} and each of the others: the same individual from a similarity of ` +
      `${calibration.balanced.similarity.toFixed(3)} on, the balanced threshold. ` +
      "The probability is for when both answers were equally likely beforehand."
    : `${nameOf(chosen)} and each of the others. No verdicts: this bundle was never calibrated.`;
  const found = embeddedFaces()
    .filter((face) => face !== chosen)
    .map((face) => [face, verify(chosen.embedding, face.embedding, calibration)]);
  found.sort(([, left], [, right]) => right.similarity - left.similarity);
  others.tBodies[0].replaceChildren(...found.map(([face, answer]) => showAnswer(face, answer)));
}

function showAnswer(face, { similarity, probability, same }) {
  const name = element("div", {}, picture(face), element("span", {}, nameOf(face)));
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

function picture(face) {
  return element("img", { src: face.url, alt: "", loading: "lazy", decoding: "async" });
}

/** "cat", or of several heads in a photo "cat, 2 of 3"; empty of a photo taken whole. */
function describe(face) {
  return face.count > 1 ? `${face.label}, ${face.number} of ${face.count}` : (face.label ?? "");
}

function nameOf(face) {
  const description = describe(face);
  return face.photo.file.name + (description ? ` (${description})` : "");
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

function countFaces(faces) {
  return count(faces.length, faces[0]?.label ? "head" : "photo");
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
    inTurn(async () => useBundle(file.name, new Uint8Array(await file.arrayBuffer())));
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
byId("crops").addEventListener("change", () => {
  inTurn(async () => {
    showDetector();
    await embedAnew();
  });
});
byId("save").addEventListener("click", save);
inTurn(start);
