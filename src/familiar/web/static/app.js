// Shared by all pages: messages, focus, photo uploads, and the progress of jobs.
"use strict";

const MAX_BATCH = { files: 100, bytes: 200e6 }; // of one upload; a large set is sent in several, one after another
const PHOTO = /\.(jpe?g|png|webp|gif|bmp|tiff?|ppm|heic|heif|hif|avif)$/i;
const ROOT = new URL("..", document.currentScript.src).pathname; // of the pages, such as / or /photos/
window.familiar = { showStatus, showError, announce, errorMessage, linkInError, toLogin, ROOT };

// --- Messages ----------------------------------------------------------------------------------------------------

function showStatus(text) {
  showMessage("status", text);
}

function showError(text) {
  showMessage("error", text);
}

// Shows a message that is on the page, with its links.
function announce(message) {
  showStatus(message.textContent);
  document.getElementById("status").replaceChildren(...message.cloneNode(true).childNodes);
}

// In the room between the bar on top and the page, until the next page: it covers nothing, and moves nothing later.
function showMessage(target, text) {
  for (const id of ["status", "error"]) document.getElementById(id).textContent = id === target ? text : "";
}

// Ends an error message with a link.
function linkInError(text, href) {
  const link = document.createElement("a");
  link.textContent = text;
  link.href = href;
  document.getElementById("error").append(" ", link);
  return link;
}

// The address without the message about an earlier change.
function withoutFlash(address) {
  const url = new URL(address);
  for (const key of ["done", "count", "propagated", "individual", "decision"]) url.searchParams.delete(key);
  return url.href;
}

function errorMessage(request) {
  if (!request.status) return "The server does not answer. Is it still running?";
  try {
    return JSON.parse(request.responseText).detail || `The server refused (${request.status}).`;
  } catch {
    return `The server refused (${request.status}).`;
  }
}

document.addEventListener("keydown", (event) => event.key === "Escape" && showStatus(""));
document.addEventListener("click", (event) => event.target.closest(".messages p:not(:has(a:hover))") && showStatus(""));

// --- htmx: show errors, and move the focus to the heading of the new page ------------------------------------------

document.addEventListener("htmx:beforeRequest", (event) => {
  const { busy } = event.detail.elt.dataset;
  if (busy) showStatus(busy);
});
document.addEventListener("htmx:responseError", (event) => {
  const request = event.detail.xhr;
  if (request.status === 401) toLogin();
  else {
    showError(errorMessage(request));
    if (request.status === 409) linkInError("Reload the page", withoutFlash(location.href)); // it is out of date, perhaps
  }
});
document.addEventListener("htmx:sendError", (event) => showError(errorMessage(event.detail.xhr)));
document.addEventListener("htmx:afterSettle", (event) => {
  const { target, requestConfig } = event.detail;
  if (target !== document.body || !requestConfig) return;
  const focused = document.activeElement;
  if (!focused || focused === document.body || focused.disabled) {
    (document.querySelector("main h1") || document.getElementById("content")).focus({ preventScroll: true });
  }
  showMessage("status", "");
});
// On the window, so that it runs after the page's own message.
window.addEventListener("htmx:afterSettle", (event) => {
  const undone = event.detail.requestConfig?.elt?.dataset.undone;
  const says = document.getElementById("flash")?.textContent ?? "";
  if (undone && event.detail.target === document.body && !says.startsWith("Undone:")) showStatus(undone);
});

function toLogin() {
  const page = location.pathname.slice(ROOT.length - 1) + location.search;
  location.assign(`${ROOT}login?next=${encodeURIComponent(page)}`);
}

// Attaches the handlers to new content once, at page load or after an htmx swap.
document.addEventListener("htmx:load", (event) => attachHandlers(event.detail.elt));

function attachHandlers(part) {
  const all = (selector) => [...(part.matches?.(selector) ? [part] : []), ...part.querySelectorAll(selector)];
  all("[data-drop]").forEach(dropZone);
  all("[data-chosen-by]").forEach(preview);
  all("form[data-upload]").forEach(uploader);
  all("[data-faces]").forEach(chooser);
}

// --- Photo fields: drop or choose ------------------------------------------------------------------------------------

// A file that is dropped outside a zone must not replace the page.
for (const kind of ["dragover", "drop"]) document.addEventListener(kind, (event) => event.preventDefault());

function dropZone(zone) {
  const input = zone.querySelector('input[type="file"]');
  const setOver = (over) => zone.classList.toggle("over", over);
  zone.addEventListener("dragover", (event) => {
    event.preventDefault();
    setOver(true);
  });
  zone.addEventListener("dragleave", (event) => zone.contains(event.relatedTarget) || setOver(false));
  zone.addEventListener("drop", async (event) => {
    event.preventDefault();
    setOver(false);
    const files = await droppedFiles(event.dataTransfer);
    if (zone.matches("[data-upload]")) return upload(files);
    const transfer = new DataTransfer();
    files.slice(0, 1).forEach((file) => transfer.items.add(file));
    input.files = transfer.files;
    input.dispatchEvent(new Event("change", { bubbles: true }));
  });
}

async function droppedFiles(data) {
  const entries = [...data.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  return entries.length ? (await Promise.all(entries.map(filesWithin))).flat() : [...data.files];
}

// The files of a folder and its subfolders.
async function filesWithin(entry) {
  if (entry.isFile) return [await new Promise((resolve, reject) => entry.file(resolve, reject))];
  const reader = entry.createReader();
  const files = [];
  for (;;) {
    const part = await new Promise((resolve, reject) => reader.readEntries(resolve, reject)); // a hundred per call
    if (!part.length) return files;
    files.push(...(await Promise.all(part.map(filesWithin))).flat());
  }
}

// Shows the chosen photo.
function preview(input) {
  input.addEventListener("click", () => (input.value = "")); // so that the same photo can be chosen again
  input.addEventListener("change", () => {
    const picture = document.getElementById(input.dataset.chosenBy);
    const file = input.files[0];
    if (picture.src) URL.revokeObjectURL(picture.src);
    picture.hidden = !file;
    if (!file) return picture.removeAttribute("src");
    picture.src = URL.createObjectURL(file);
    picture.alt = `The photo you chose: ${file.name}`;
    picture.onerror = () => (picture.hidden = true); // a format that the browser cannot show
  });
}

// --- Uploads -----------------------------------------------------------------------------------------------------

let uploading = false;
window.addEventListener("beforeunload", (event) => uploading && event.preventDefault());

function uploader(form) {
  for (const input of form.querySelectorAll('input[type="file"]')) {
    input.addEventListener("change", () => {
      upload([...input.files]);
      input.value = "";
    });
  }
}

async function upload(chosen) {
  if (uploading) return showError("Photos are already being sent; wait until they have arrived.");
  const candidates = chosen.filter((file) => !file.name.startsWith("."));
  const isPhoto = (file) => PHOTO.test(file.name) || file.type.startsWith("image/");
  const files = candidates.filter(isPhoto);
  if (!files.length) return showError(candidates.length ? "None of these files is a photo." : "Nothing was chosen.");
  const bar = document.getElementById("upload");
  const label = document.getElementById("upload-words");
  const total = files.reduce((sum, file) => sum + file.size, 0);
  const refused = candidates.filter((file) => !isPhoto(file)).map((file) => `${file.name}: is not a photo`);
  let sentBytes = 0;
  let job = null; // of the previous batch
  let shown = null; // a promise
  uploading = true;
  bar.closest("[hidden]")?.removeAttribute("hidden");
  showStatus(`Sending ${pluralize(files.length, "photo")}.`);
  try {
    for (const batch of batches(files)) {
      const result = await sendBatch(batch, job, (bytes) => {
        bar.value = total ? Math.min((sentBytes + bytes) / total, 1) : 1;
        label.textContent = `Sending ${pluralize(files.length, "photo")}: ${Math.round(100 * bar.value)} %`;
      });
      if (!result) return;
      refused.push(...result.refused);
      job = result.job ?? job;
      sentBytes += batch.reduce((sum, file) => sum + file.size, 0);
      shown = refresh();
    }
    showStatus(`${pluralize(candidates.length - refused.length, "photo")} sent${refused.length ? `, ${pluralize(refused.length, "file")} left out` : ""}.`);
    shown?.then(announceDone);
  } catch (error) {
    showError(error.message);
  } finally {
    uploading = false;
    const box = document.getElementById("uploading");
    if (box) box.hidden = true;
    showRefused(refused);
  }
}

// Lists the files that were not accepted, with the reasons, below the form.
function showRefused(refused) {
  const details = document.getElementById("refused");
  if (!details) return;
  details.hidden = !refused.length;
  details.querySelector("summary").textContent = `${pluralize(refused.length, "file")} left out, and why`;
  details.querySelector("ul").replaceChildren(
    ...refused.map((text) => {
      const item = document.createElement("li");
      item.textContent = text;
      return item;
    }),
  );
}

function batches(files) {
  const all = [[]];
  let bytes = 0;
  for (const file of files) {
    if (all.at(-1).length && (all.at(-1).length >= MAX_BATCH.files || bytes + file.size > MAX_BATCH.bytes)) {
      all.push([]);
      bytes = 0;
    }
    all.at(-1).push(file);
    bytes += file.size;
  }
  return all;
}

// Resolves once the server has stored the files, with their job and the messages of refused files; waits while the
// server is busy. `previousJob`: the job of the previous batch.
async function sendBatch(files, previousJob, progress) {
  for (;;) {
    const request = await postBatch(files, previousJob, progress);
    if (request.status === 202) {
      const job = JSON.parse(request.responseText);
      return { job: job.number, refused: job.skipped.map((photo) => `${photo.name}: ${photo.reason}`) };
    }
    if (request.status === 415) {
      return { refused: files.length === 1 ? [errorMessage(request)] : files.map((file) => `${file.name}: is not a readable photo`) };
    }
    if (request.status === 401 || request.responseURL.includes("/login")) return toLogin();
    if (request.status !== 503 && request.status !== 429) throw new Error(errorMessage(request));
    await new Promise((resolve) => setTimeout(resolve, 1000 * (Number(request.getResponseHeader("Retry-After")) || 2)));
  }
}

function postBatch(files, previousJob, progress) {
  const body = new FormData();
  files.forEach((file) => body.append("files", file, file.name));
  return new Promise((resolve) => {
    const request = new XMLHttpRequest();
    request.open("POST", `${ROOT}api/v1/photos${previousJob ? `?previous_job=${encodeURIComponent(previousJob)}` : ""}`);
    request.setRequestHeader("Accept", "application/json");
    request.upload.onprogress = (event) => progress(event.loaded);
    request.onloadend = () => resolve(request);
    request.send(body);
  });
}

// --- Jobs --------------------------------------------------------------------------------------------------------

// The card of a job that runs asks for itself every second (hx-trigger); when the job has ended, the photos are new too.
document.addEventListener("htmx:afterOnLoad", (event) => {
  const before = event.detail.requestConfig.elt;
  if (!before.dataset.jobLive) return;
  const card = document.getElementById(before.id);
  card?.querySelector("details")?.toggleAttribute("open", before.querySelector("details")?.open ?? false);
  if (card?.dataset.jobLive) return;
  refresh()?.then(announceDone);
});

function announceDone() {
  const summary = document.querySelector("#album .job .summary");
  if (summary && !document.querySelector("#album [data-job-live]")) announce(summary);
}

// Reloads the album below the form, which stays as it is.
function refresh() {
  const album = document.getElementById("album");
  if (!album) return;
  // The user may have gone to another page by the time the answer is here.
  album.addEventListener("htmx:beforeSwap", (event) => {
    if (!album.isConnected) event.detail.shouldSwap = false;
  });
  return htmx.ajax("GET", location.pathname + location.search, {
    source: document.body, target: "#album", select: "#album", selectOOB: "#undoing,#lead", swap: "outerHTML show:none",
  });
}

// --- Choice among several faces -----------------------------------------------------------------------------------

function chooser(group) {
  const buttons = [...group.querySelectorAll("button[aria-controls]")];
  const choose = (chosen) => {
    for (const button of buttons) {
      button.setAttribute("aria-pressed", button === chosen);
      document.getElementById(button.getAttribute("aria-controls")).hidden = button !== chosen;
    }
  };
  buttons.forEach((button) => button.addEventListener("click", () => choose(button)));
  if (buttons.length) choose(buttons[0]);
}

function pluralize(count, noun) {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}
