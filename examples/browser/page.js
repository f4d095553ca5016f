/** What is shown and pressed. All work is done in turn, one photo after the other. */

import { readMetadata } from "./bundle.js";
import { group, verify } from "./compare.js";
import { DETECTORS } from "./detect.js";
import { cropUrl, embedCrop, embedHeads, embedWholePhoto } from "./faces.js";
import { ready as jpegReady } from "./jpeg.js";
import { embedRouted, openRouter } from "./router.js";

const DEFAULT_BUNDLE = "model.onnx"; // taken where it lies beside the page
const DEFAULT_ROUTER = "router.json"; // taken where it does, and no bundle of that name
const DETECTOR_FILE = "heads.onnx"; // fetched when the page loads: later it may be offline
const TARGETS = { pets: "heads of cats and dogs", auto: "heads of cats, dogs and people" };

const byId = (id) => document.getElementById(id);
const photos = []; // {file, url, faces, problem}; `faces` are of the model in use, as faces.js makes them
// {name, router, features, bundles, embedFace}. Of a bundle, {name, bytes, metadata, embed}, `router` is null, and
// `features` and all `bundles` are that bundle.
let model = null;
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
  const bundle = await fetchOptional(DEFAULT_BUNDLE);
  const router = bundle ? null : await fetchOptional(DEFAULT_ROUTER);
  if (bundle) await useBundle(DEFAULT_BUNDLE, bundle);
  else if (router) await useRouter(DEFAULT_ROUTER, router, fetchOptional);
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
  const bundle = await openBundle(name, bytes);
  const embedFace = async (crop) => ({ ...(await embedCrop(bundle, crop)), bundle, species: null });
  await useModel({ name, router: null, features: bundle, bundles: [bundle], embedFace });
}

/** Opens a router; `read` returns the content of a file beside it. */
async function useRouter(name, bytes, read) {
  const router = await openRouter(bytes, name, read, openBundle);
  const bundles = [...new Set([...router.bundles.values(), router.features])];
  const embedFace = (crop, label) => embedRouted(router, crop, label);
  await useModel({ name, router, features: router.features, bundles, embedFace });
}

async function useModel(next) {
  if (DETECTORS[next.features.metadata.detector]) await openDetector();
  const spaces = ({ bundles }) => JSON.stringify(bundles.map(({ metadata }) => metadata.space_id));
  // Vectors of two spaces do not compare, and those of two networks in one space are not the same: all anew.
  const otherSpace = model && spaces(model) !== spaces(next);
  model = next;
  showModel();
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
  const labels = DETECTORS[model.features.metadata.detector];
  return labels && detector.network && !byId("crops").checked ? labels : null;
}

async function addPhotos(files) {
  photos.push(...files.map((file) => ({ file, url: URL.createObjectURL(file), faces: null, problem: null })));
  if (model) await embedPhotos();
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
  if (!labels) return [{ ...(await embedWholePhoto(photo.file, model.embedFace)), photo, url: photo.url }];
  const heads = await embedHeads(photo.file, model.embedFace, detector.network, labels);
  if (!heads.length) {
    const species = new Intl.ListFormat("en", { type: "disjunction" }).format(labels);
    throw new Error(`no head of a ${species} found. Choose “Photos are crops already” if it is one.`);
  }
  return Promise.all(
    heads.map(async ({ crop, ...head }) => ({ ...head, photo, url: crop ? await cropUrl(crop) : photo.url })),
  );
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

/** Faces in groups, each species by itself. */
function groupsNow() {
  const bySpecies = Map.groupBy(embeddedFaces(), (face) => face.species);
  const groups = [...bySpecies.values()].flatMap((faces) => {
    const embeddings = faces.map((face) => face.embedding);
    return group(embeddings, thresholdOf(faces[0].bundle)).map((places) => places.map((place) => faces[place]));
  });
  return groups.sort((a, b) => b.length - a.length);
}

function thresholdOf(bundle) {
  return bundle.metadata.calibration[byId("threshold").value].similarity;
}

/** Everything that was found, as one JSON file. */
function save() {
  const embedded = embeddedFaces();
  const { router, features } = model;
  const describeBundle = ({ name, metadata }) => {
    const { space_id, file_id, precision, detector } = metadata;
    return { name, space_id, file_id, precision, detector };
  };
  const species = router && [...router.bundles].map(([name, bundle]) => [name, describeBundle(bundle)]);
  const results = {
    bundle: describeBundle(features), // of a router the one that its classifier takes
    species_bundles: species && Object.fromEntries(species), // null: no router
    labels: searchLabels(), // null: photos were taken whole, and have no boxes
    faces: embedded.map((face) => ({
      photo: face.photo.file.name,
      box_xyxy_px: face.box,
      label: face.label,
      species: face.species,
      species_probability: face.probability ?? null,
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

function showModel() {
  const { name, router, bundles } = model;
  byId("bundle-name").textContent = name;
  const rows = (router ? factsOfRouter(router) : factsOfBundle(model.features)).map(([term, fact]) => [
    element("dt", {}, term),
    element("dd", {}, fact),
  ]);
  byId("facts").replaceChildren(...rows.flat());
  const used = router ? [...new Set(router.bundles.values())] : bundles;
  const guessing = used.filter(({ metadata }) => metadata.calibration.slope === null);
  byId("warning").hidden = !guessing.length;
  byId("warning").textContent =
    `${router ? guessing.map((bundle) => bundle.name).join(", ") : "This bundle"} was never calibrated: it gives ` +
    "similarities, but no verdict and no probability, and the threshold of the groups is a guess.";
  showDetector();
}

function factsOfBundle({ metadata, bytes }) {
  const { preprocessing, results } = metadata;
  return [
    ["Network", `${metadata.network}, ${metadata.precision}`],
    ["Size", `${bytes.toLocaleString("en")} bytes`],
    ["Crops", `${preprocessing.size_px} × ${preprocessing.size_px} px`],
    ["Detector", metadata.detector],
    ["Embedding", `${metadata.embedding_dim} components`],
    ["Space", metadata.space_id.slice(0, 12)],
    ["Measured", results.auc ? `ROC AUC ${results.auc.toFixed(3)} on ${results.on}` : "nothing"],
    ["License", metadata.license],
  ];
}

function factsOfRouter({ classifier, features, bundles }) {
  const size = model.bundles.reduce((sum, bundle) => sum + bundle.bytes, 0);
  const describeSpecies = (bundle) =>
    bundle
      ? `${bundle.name}: ${bundle.metadata.network}, ${bundle.metadata.precision}`
      : "no bundle: photos are left out";
  return [
    ...classifier.names.map((species) => [species, describeSpecies(bundles.get(species))]),
    ["Classifier", `on ${features.name}, right on ${percent(classifier.held_out.accuracy)} of held-out photos`],
    ["Size", `${size.toLocaleString("en")} bytes`],
    ["Detector", features.metadata.detector],
    ["License", [...new Set(model.bundles.map(({ metadata }) => metadata.license))].join("; ")],
  ];
}

/** Says whether heads are looked for, and if not, why. */
function showDetector() {
  const warning = detectorWarning();
  byId("detector-warning").hidden = !warning;
  byId("detector-warning").textContent = warning;
  const name = model.features.metadata.detector;
  byId("crops-choice").hidden = !(DETECTORS[name] && detector.network);
  byId("detection").textContent = searchLabels()
    ? `This page looks for ${TARGETS[name]}. Each becomes an entry of its own, numbered from the left of its photo.`
    : "Each photo is taken whole: cut the faces out first.";
}

function detectorWarning() {
  const name = model.features.metadata.detector;
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
  const [alike, each] = model.router
    ? [
        [...model.router.bundles].map(([name, bundle]) => `${thresholdOf(bundle).toFixed(3)} (${name})`).join(", "),
        " Each species is grouped by itself.",
      ]
    : [thresholdOf(model.features).toFixed(3), ""];
  byId("grouping").textContent =
    "The two groups whose mean vectors are most alike become one, as long as they are at least " +
    `${alike} alike: centroid linkage, as familiar.neighbors.clustering.${each}`;
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
  const sure = face.species && !face.label ? ` (${percent(face.probability)})` : "";
  const small = element("small", {}, describe(face) + sure || milliseconds(face.readMs + face.networkMs));
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
  const { calibration } = chosen.bundle.metadata;
  const fitted = calibration.slope !== null;
  byId("comparing").textContent = fitted
    ? `${nameOf(chosen)} and each of the others: the same individual from a similarity of ` +
      `${calibration.balanced.similarity.toFixed(3)} on, the balanced threshold. ` +
      "The probability is for when both answers were equally likely beforehand."
    : `${nameOf(chosen)} and each of the others. No verdicts: this bundle was never calibrated.`;
  const found = embeddedFaces()
    .filter((face) => face !== chosen)
    .map((face) => [face, verify(chosen, face)]);
  const alike = (answer) => answer?.similarity ?? -2; // less than any: other species come last
  found.sort(([, left], [, right]) => alike(right) - alike(left));
  others.tBodies[0].replaceChildren(...found.map(([face, answer]) => showAnswer(face, answer)));
}

/** A row of the table; `answer` is null of another species. */
function showAnswer(face, answer) {
  const name = element("div", {}, picture(face), element("span", {}, nameOf(face)));
  const { similarity = null, probability = null, same = false } = answer ?? {};
  const verdict = same === null ? "none" : same ? "same" : "different";
  return element(
    "tr",
    { className: verdict },
    element("th", { scope: "row" }, name),
    element("td", {}, similarity === null ? "none" : similarity.toFixed(3)),
    element("td", {}, probability === null ? "none" : percent(probability)),
    element("td", {}, answer ? verdict : "different species"),
  );
}

function picture(face) {
  return element("img", { src: face.url, alt: "", loading: "lazy", decoding: "async" });
}

/** "cat", or of several heads in a photo "cat, 2 of 3"; empty of a photo taken whole by a bundle. */
function describe(face) {
  const species = face.species ?? face.label ?? "";
  return face.count > 1 ? `${species}, ${face.number} of ${face.count}` : species;
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

function percent(share) {
  return `${(100 * share).toFixed(1)} %`;
}

function milliseconds(value) {
  return `${value.toFixed(value < 10 ? 1 : 0)} ms`;
}

/** Bundles, routers and photos, however they came. */
function take(files) {
  const named = (ending) => files.filter((file) => file.name.toLowerCase().endsWith(ending));
  const content = async (file) => file && new Uint8Array(await file.arrayBuffer());
  const [bundles, routers] = [named(".onnx"), named(".json")];
  for (const router of routers) {
    const beside = (path) => content(bundles.find((bundle) => bundle.name === path));
    inTurn(async () => useRouter(router.name, await content(router), beside));
  }
  if (!routers.length) {
    for (const bundle of bundles) inTurn(async () => useBundle(bundle.name, await content(bundle)));
  }
  const pictures = files.filter((file) => !bundles.includes(file) && !routers.includes(file));
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
