// What every page does: messages, the focus, photos that are dropped, and the progress of taking them in.
"use strict";

const AT_ONCE = { files: 100, bytes: 200e6 }; // of one upload; a large set goes in several, one after another
const PHOTO = /\.(jpe?g|png|webp|gif|bmp|tiff?|ppm|heic|heif|avif)$/i;
const MESSAGE_SECONDS = 8;
window.familiar = { say, wrong };

// --- Messages ----------------------------------------------------------------------------------------------------

let silence = 0;

function say(text) {
  tell("said", text);
}

function wrong(text) {
  tell("wrong", text);
}

function tell(where, text) {
  for (const id of ["said", "wrong"]) document.getElementById(id).textContent = id === where ? text : "";
  clearTimeout(silence);
  if (text && where === "said") silence = setTimeout(() => say(""), 1000 * MESSAGE_SECONDS);
}

function reason(request) {
  if (!request.status) return "The server does not answer. Is it still running?";
  try {
    return JSON.parse(request.responseText).detail || `The server refused (${request.status}).`;
  } catch {
    return `The server refused (${request.status}).`;
  }
}

document.addEventListener("keydown", (event) => event.key === "Escape" && say(""));
document.addEventListener("click", (event) => event.target.closest(".messages p:not(:has(a:hover))") && say(""));

// --- htmx: errors are said, and the focus goes where the new page begins ------------------------------------------

document.addEventListener("htmx:beforeRequest", () => document.body.classList.add("waiting"));
document.addEventListener("htmx:afterRequest", () => document.body.classList.remove("waiting"));
document.addEventListener("htmx:responseError", (event) => {
  const request = event.detail.xhr;
  if (request.status === 401) toLogin();
  else wrong(reason(request));
});
document.addEventListener("htmx:sendError", (event) => wrong(reason(event.detail.xhr)));
document.addEventListener("htmx:afterSettle", (event) => {
  const { target, requestConfig } = event.detail;
  if (target !== document.body || !requestConfig) return;
  const focused = document.activeElement;
  if (!focused || focused === document.body || focused.disabled) {
    (document.querySelector("main h1") || document.getElementById("content")).focus({ preventScroll: true });
  }
  tell("said", "");
});
// On the window, so that it comes after what the page itself tells.
window.addEventListener("htmx:afterSettle", (event) => {
  const undone = event.detail.requestConfig?.elt?.dataset.undone;
  if (undone && event.detail.target === document.body) say(undone);
});

function toLogin() {
  location.assign(`/login?next=${encodeURIComponent(location.pathname + location.search)}`);
}

// Whatever comes into the page, at first or by htmx, is made to work once.
document.addEventListener("htmx:load", (event) => enliven(event.detail.elt));

function enliven(part) {
  const all = (selector) => [...(part.matches?.(selector) ? [part] : []), ...part.querySelectorAll(selector)];
  all("[data-drop]").forEach(dropZone);
  all("[data-chosen-by]").forEach(preview);
  all("form[data-upload]").forEach(uploader);
  all("[data-job-live]").forEach((card) => follow(card.dataset.jobLive));
  all("[data-faces]").forEach(chooser);
}

// --- Photos that are dropped or chosen ------------------------------------------------------------------------------

// A file that misses its zone must not replace the page.
for (const kind of ["dragover", "drop"]) document.addEventListener(kind, (event) => event.preventDefault());

function dropZone(zone) {
  const input = zone.querySelector('input[type="file"]');
  const over = (is) => zone.classList.toggle("over", is);
  zone.addEventListener("dragover", (event) => {
    event.preventDefault();
    over(true);
  });
  zone.addEventListener("dragleave", (event) => zone.contains(event.relatedTarget) || over(false));
  zone.addEventListener("drop", async (event) => {
    event.preventDefault();
    over(false);
    const files = await dropped(event.dataTransfer);
    if (zone.matches("[data-upload]")) return upload(files);
    const held = new DataTransfer();
    files.slice(0, 1).forEach((file) => held.items.add(file));
    input.files = held.files;
    input.dispatchEvent(new Event("change", { bubbles: true }));
  });
}

async function dropped(data) {
  const entries = [...data.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  return entries.length ? (await Promise.all(entries.map(within))).flat() : [...data.files];
}

// The files of a folder, and of the folders in it.
async function within(entry) {
  if (entry.isFile) return [await new Promise((good, bad) => entry.file(good, bad))];
  const reader = entry.createReader();
  const found = [];
  for (;;) {
    const some = await new Promise((good, bad) => reader.readEntries(good, bad)); // a hundred at a time
    if (!some.length) return found;
    found.push(...(await Promise.all(some.map(within))).flat());
  }
}

// Shows the photo that was chosen; a form whose photos are all there is sent at once.
function preview(input) {
  const form = input.form;
  input.addEventListener("click", () => (input.value = "")); // so that the same photo can be given again
  input.addEventListener("change", () => {
    const picture = document.getElementById(input.dataset.chosenBy);
    const file = input.files[0];
    if (picture.src) URL.revokeObjectURL(picture.src);
    picture.hidden = !file;
    if (!file) return picture.removeAttribute("src");
    picture.src = URL.createObjectURL(file);
    picture.alt = `The photo you chose: ${file.name}`;
    picture.onerror = () => (picture.hidden = true); // a format that browsers do not show
    const every = [...form.querySelectorAll('input[type="file"]')].every((one) => one.files.length);
    if (!every) return;
    say("Looking.");
    form.requestSubmit();
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
  if (uploading) return wrong("Photos are on their way already; wait until they are there.");
  const every = chosen.filter((file) => !file.name.startsWith("."));
  const isPhoto = (file) => PHOTO.test(file.name) || file.type.startsWith("image/");
  const files = every.filter(isPhoto);
  if (!files.length) return wrong(every.length ? "None of these files is a photo." : "Nothing was chosen.");
  const bar = document.getElementById("upload");
  const words = document.getElementById("upload-words");
  const total = files.reduce((sum, file) => sum + file.size, 0);
  const refused = every.filter((file) => !isPhoto(file)).map((file) => `${file.name}: is no photo`);
  let before = 0;
  let job = null; // of the batch before
  uploading = true;
  bar.closest("[hidden]")?.removeAttribute("hidden");
  say(`Sending ${counted(files.length, "photo")}.`);
  try {
    for (const batch of batches(files)) {
      const some = await sent(batch, job, (bytes) => {
        bar.value = total ? Math.min((before + bytes) / total, 1) : 1;
        words.textContent = `Sending ${counted(files.length, "photo")}: ${Math.round(100 * bar.value)} %`;
      });
      if (!some) return;
      refused.push(...some.refused);
      job = some.job ?? job;
      before += batch.reduce((sum, file) => sum + file.size, 0);
      refresh();
    }
    say(`${counted(every.length - refused.length, "photo")} sent${refused.length ? `, ${counted(refused.length, "file")} left out` : ""}.`);
  } catch (error) {
    wrong(error.message);
  } finally {
    uploading = false;
    const shown = document.getElementById("uploading");
    if (shown) shown.hidden = true;
    list(refused);
  }
}

// What was not taken, and why, beneath the form.
function list(refused) {
  const details = document.getElementById("refused");
  if (!details) return;
  details.hidden = !refused.length;
  details.querySelector("summary").textContent = `${counted(refused.length, "file")} left out, and why`;
  details.querySelector("ul").replaceChildren(
    ...refused.map((one) => {
      const item = document.createElement("li");
      item.textContent = one;
      return item;
    }),
  );
}

function batches(files) {
  const all = [[]];
  let bytes = 0;
  for (const file of files) {
    if (all.at(-1).length && (all.at(-1).length >= AT_ONCE.files || bytes + file.size > AT_ONCE.bytes)) {
      all.push([]);
      bytes = 0;
    }
    all.at(-1).push(file);
    bytes += file.size;
  }
  return all;
}

// Resolves once the server has them on its disk, with their job and what it says of those it refused; waits where it is
// busy. `before`: the job of the batch before.
async function sent(files, before, progress) {
  for (;;) {
    const request = await posted(files, before, progress);
    if (request.status === 202) {
      const job = JSON.parse(request.responseText);
      follow(job.number);
      // One that waits unseen is told by those before it: a browser keeps few connections to a server.
      if (before && !document.getElementById(`job-${before}`)) unfollow(before);
      return { job: job.number, refused: job.skipped.map((one) => `${one.name}: ${one.reason}`) };
    }
    if (request.status === 415) {
      return { refused: files.length === 1 ? [reason(request)] : files.map((file) => `${file.name}: is no photo that can be read`) };
    }
    if (request.status === 401 || request.responseURL.includes("/login")) return toLogin();
    if (request.status !== 503 && request.status !== 429) throw new Error(reason(request));
    await new Promise((done) => setTimeout(done, 1000 * (Number(request.getResponseHeader("Retry-After")) || 2)));
  }
}

function posted(files, before, progress) {
  const body = new FormData();
  files.forEach((file) => body.append("files", file, file.name));
  return new Promise((done) => {
    const request = new XMLHttpRequest();
    request.open("POST", `/api/v1/photos${before ? `?continues=${encodeURIComponent(before)}` : ""}`);
    request.setRequestHeader("X-CSRF-Token", document.querySelector('meta[name="csrf"]').content);
    request.setRequestHeader("Accept", "application/json");
    request.upload.onprogress = (event) => progress(event.loaded);
    request.onloadend = () => done(request);
    request.send(body);
  });
}

// --- Jobs --------------------------------------------------------------------------------------------------------

const watched = new Map();

function unfollow(number) {
  watched.get(number)?.close();
  watched.delete(number);
}

// To its end, which may come before the album shows it.
function follow(number) {
  unfollow(number);
  const events = new EventSource(`/api/v1/jobs/${encodeURIComponent(number)}/events`);
  let state = document.getElementById(`job-${number}`)?.dataset.state; // as it was shown or told last
  watched.set(number, events);
  events.onerror = () => events.readyState === EventSource.CLOSED && setTimeout(refresh, 3000); // else it tries again
  events.onmessage = (event) => {
    if (!document.getElementById("album")) return events.close();
    const job = JSON.parse(event.data);
    const shown = document.getElementById(`job-${number}`);
    if (shown) show(shown, job);
    const over = ["done", "failed", "stopped"].includes(job.state);
    if (over) unfollow(number);
    if (job.state === "done") say(taken(job));
    if (over || (state && job.state !== state)) refresh();
    state = job.state;
  };
}

function taken(job) {
  const known = job.known ? ` ${counted(job.known, "photo")} known already.` : "";
  if (!job.photos) return `No new photo.${known}`;
  return `${counted(job.photos, "new photo")}: ${counted(job.faces, "face")}, ${counted(job.new_individuals, "new individual")}.${known}`;
}

function show(card, job) {
  card.querySelector(".figures").hidden = !job.found;
  for (const field of card.querySelectorAll("[data-field]")) {
    const value = job[field.dataset.field];
    if (value !== undefined) field.textContent = typeof value === "number" ? value.toLocaleString("en") : value;
  }
  const bar = card.querySelector("progress");
  if (!bar) return;
  bar.max = Math.max(job.found, 1);
  if (job.state === "looking") bar.value = job.looked;
  else bar.removeAttribute("value");
}

// The album as it is now, beneath the form, which stays as it is.
function refresh() {
  if (!document.getElementById("album")) return;
  htmx.ajax("GET", location.pathname + location.search, {
    source: document.body, target: "#album", select: "#album", selectOOB: "#undoing,#lead", swap: "outerHTML show:none",
  });
}

// --- One of several faces ----------------------------------------------------------------------------------------

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

function counted(count, one) {
  return `${count.toLocaleString("en")} ${one}${count === 1 ? "" : "s"}`;
}
