// Individuals, faces, questions, and boxes on photos. Uses only `window.familiar` of app.js.
"use strict";

(() => {
  const within = (part, selector) => [...(part.matches?.(selector) ? [part] : []), ...part.querySelectorAll(selector)];

  const READING_MS = 400; // after a new question: a key that is pressed sooner was meant for the one before
  let questionShown = 0;
  let loadedQuestion = null; // a form that htmx has processed: before that, the browser would load a whole page
  document.addEventListener("htmx:load", (event) => {
    within(event.detail.elt, "form[data-keys]").forEach((form) => {
      loadedQuestion = form;
      questionShown = performance.now();
    });
    within(event.detail.elt, "form.selection").forEach(show);
    within(event.detail.elt, "[data-stage]").forEach(stage);
    within(event.detail.elt, 'img[src*="/api/v1/"]').forEach((image) => image.complete && !image.naturalWidth && markMissing(image));
    within(event.detail.elt, "#keys").forEach((box) => (box.checked = localStorage.getItem("keys") !== "off"));
  });

  // An image whose photo is missing is hidden.
  const markMissing = (image) => image.classList.add("missing");
  document.addEventListener("error", (event) => event.target.matches?.('img[src*="/api/v1/"]') && markMissing(event.target), true);

  // --- Flash messages; after a name is saved, the focus moves to the next name field -------------------------------

  let namingIndex = -1;
  document.addEventListener("htmx:beforeRequest", (event) => {
    const form = event.detail.elt;
    namingIndex = form.matches?.(".naming") ? namingForms().indexOf(form) : -1;
  });
  document.addEventListener("htmx:afterSettle", (event) => {
    if (event.detail.target !== document.body || event.detail.requestConfig?.verb !== "post") return;
    const flash = document.getElementById("flash");
    if (flash) window.familiar.announce(flash);
    if (namingIndex < 0) return;
    const next = namingForms()[namingIndex];
    if (next && !next.elements.name.value) next.elements.name.focus();
    namingIndex = -1;
  });
  const namingForms = () => [...document.querySelectorAll("form.naming")];

  // --- A name that was typed into a tile is saved when the focus leaves the tile's form -----------------------------

  const unsaved = () => namingForms().filter((form) => form.matches(".changed"));
  let saving = null; // a promise
  let pressed = null; // Safari does not focus the button that is pressed
  document.addEventListener("pointerdown", (event) => (pressed = event.target), true);
  document.addEventListener("keydown", () => (pressed = null), true);
  document.addEventListener("focusout", (event) => {
    const form = event.target.closest?.("form.naming.changed");
    if (!form || form.contains(event.relatedTarget) || (pressed && form.contains(pressed))) return;
    const field = form.elements.name;
    if (field.value.trim()) {
      saving = save(form).finally(() => (saving = null));
      return;
    }
    field.value = field.defaultValue;
    form.classList.remove("changed");
  });
  document.addEventListener("htmx:beforeRequest", (event) => event.detail.elt.classList.remove("changed"));
  document.addEventListener("htmx:afterRequest", (event) => {
    if (!event.detail.successful && event.detail.elt.matches(".naming")) event.detail.elt.classList.add("changed");
  });
  // The next page shows the name, and what undo would undo, only once it is saved.
  document.addEventListener("htmx:confirm", (event) => {
    if (!saving) return;
    event.preventDefault();
    saving.then(() => event.detail.issueRequest());
  });
  window.addEventListener("beforeunload", (event) => unsaved().length && event.preventDefault());

  // Saves a name without a new page: the user may be typing the next one.
  async function save(form) {
    const { showError, errorMessage, linkInError, toLogin } = window.familiar;
    const { name, back } = form.elements;
    const saved = name.value;
    form.classList.remove("changed");
    const body = new URLSearchParams(new FormData(form));
    body.set("back", new URL(form.action).pathname.slice(window.familiar.ROOT.length - 1).replace(/\/name$/, ""));
    const response = await fetch(form.action, { method: "POST", body, keepalive: true }).catch(Response.error);
    const text = await response.text().catch(() => "");
    if (!form.isConnected) return;
    const page = new DOMParser().parseFromString(text, "text/html");
    const url = new URL(response.url || location.href);
    if (response.ok && url.searchParams.get("done") === "named") {
      name.defaultValue = saved;
      form.classList.toggle("changed", name.value !== saved);
      const states = [...form.closest(".tile").querySelectorAll("[name=state]")];
      states.forEach((state) => (state.value = page.querySelector("[name=state]").value));
      form.closest(".tile").querySelector("[data-name]").dataset.name = saved;
      const undo = document.getElementById("undoing");
      const fresh = page.getElementById("undoing");
      fresh.elements.back.value = undo.elements.back.value;
      undo.replaceWith(fresh);
      htmx.process(fresh);
      markSaved(form.closest(".tile"));
      return;
    }
    form.classList.add("changed");
    if (response.status === 401 || url.pathname.endsWith("/login")) return toLogin();
    if (!response.ok) return showError(errorMessage({ status: response.status, responseText: text }));
    url.searchParams.set("back", back.value);
    showError(`Not saved: there is already an individual called ${saved.trim()}.`);
    linkInError("Are both the same?", url.href).onclick = () => form.classList.remove("changed");
  }

  // On the tile, as a message between the bar and the page would move what the user is about to press.
  function markSaved(tile) {
    const mark = tile.querySelector(".mark.saved") || tile.appendChild(document.createElement("span"));
    mark.className = "mark saved";
    mark.setAttribute("role", "status");
    mark.textContent = "Saved";
  }

  document.addEventListener("input", (event) => {
    const field = event.target;
    if (field.getAttribute?.("list") !== "names") return;
    // Keeps Save visible, though the focus leaves before the click has ended (Safari does not focus buttons).
    field.form.classList.toggle("changed", field.value !== field.defaultValue);
  });

  // --- Selection ----------------------------------------------------------------------------------------------------

  let lastTick = null;
  const ticks = (form) => [...form.elements].filter((element) => element.type === "checkbox");

  document.addEventListener("click", (event) => {
    const similar = event.target.closest?.("[data-similar]");
    if (similar) selectSimilar(similar);
    const box = event.target;
    if (box.type !== "checkbox" || !box.form?.matches(".selection")) return;
    const all = ticks(box.form);
    if (event.shiftKey && lastTick?.isConnected) {
      const [from, to] = [all.indexOf(lastTick), all.indexOf(box)].sort((a, b) => a - b);
      all.slice(from, to + 1).forEach((tick) => (tick.checked = box.checked));
    }
    lastTick = box;
    show(box.form);
  });
  document.addEventListener("reset", (event) => event.target.matches(".selection") && setTimeout(show, 0, event.target));
  document.addEventListener("keydown", (event) => {
    const isInField = event.target.matches("input:not([type=checkbox]), select");
    if (event.key === "Escape" && !isInField) document.querySelector("form.selection:not([hidden])")?.reset();
  });

  // Ticks the faces that are nearer to the selected ones than to the others.
  async function selectSimilar(button) {
    const all = ticks(button.form);
    const chosen = all.filter((tick) => tick.checked).map((tick) => ["face", tick.value]);
    const answer = await fetch(`${button.dataset.similar}?${new URLSearchParams(chosen)}`);
    if (!answer.ok) return;
    const faces = new Set((await answer.json()).map(String));
    all.filter((tick) => faces.has(tick.value)).forEach((tick) => (tick.checked = true));
    show(button.form);
  }

  // Updates the bar: number of selected items, whether that is enough, and which of them can be merged into.
  function show(form) {
    const chosen = ticks(form).filter((tick) => tick.checked);
    const enough = chosen.length >= Number(form.dataset.least);
    form.hidden = !chosen.length;
    form.querySelectorAll("[data-act]").forEach((button) => (button.disabled = !enough));
    const hint = !enough && form.dataset.hint ? `: ${form.dataset.hint}` : "";
    form.querySelector(".count").textContent = chosen.length ? `${chosen.length} selected${hint}` : "";
    const into = form.elements.into;
    if (!into) return;
    const previous = into.value;
    into.closest("label").hidden = !enough;
    into.replaceChildren(...chosen.map((tick) => new Option(tick.dataset.name, tick.value)));
    const named = chosen.find((tick) => !tick.dataset.name.startsWith("#"));
    if (chosen.some((tick) => tick.value === previous)) into.value = previous;
    else if (named) into.value = named.value;
  }

  // --- Answering questions with keys --------------------------------------------------------------------------------

  document.addEventListener("change", (event) => {
    if (event.target.id === "keys") localStorage.setItem("keys", event.target.checked ? "on" : "off");
  });
  document.addEventListener("keydown", (event) => {
    const form = document.querySelector("form[data-keys]");
    if (!form || form !== loadedQuestion || !document.getElementById("keys").checked || event.repeat) return;
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (event.target.closest("input:not([type=checkbox]), textarea, select, [contenteditable]")) return;
    if (event.key === " " && event.target.closest("a, button, input, summary")) return; // the space key presses it
    const key = event.key.toLowerCase();
    const button = [...form.querySelectorAll("[data-key]")].find((candidate) => candidate.dataset.key.includes(key));
    if (!button || key.length !== 1 || document.body.classList.contains("htmx-request")) return;
    event.preventDefault();
    if (performance.now() - questionShown >= READING_MS) button.click();
  });

  // --- Boxes on a photo ---------------------------------------------------------------------------------------------

  const SVG = "http://www.w3.org/2000/svg";
  const EDGES = ["left", "top", "right", "bottom"];
  const MIN_SIDE = 8; // pixels of a photo; a smaller box was drawn by accident
  const CORNERS = { nw: [0, 1], ne: [2, 1], sw: [0, 3], se: [2, 3] }; // which edges a corner moves

  function stage(holder) {
    const svg = holder.querySelector("svg");
    const { width, height } = svg.viewBox.baseVal;
    const letters = [...svg.querySelectorAll("text")];
    const scale = () => width / (svg.getBoundingClientRect().width || width); // photo pixels per pixel of the screen

    let editing = null; // {form, group, box}

    function sized() {
      letters.forEach((letter) => letter.setAttribute("font-size", 14 * scale()));
      if (editing) draw();
    }
    new ResizeObserver(sized).observe(svg);

    // Selects a face on the photo and in the list.
    function choose(number) {
      for (const element of document.querySelectorAll(".stage .box, .photo-face")) {
        element.classList.toggle("chosen", element.dataset.face === number || element.id === `face-${number}`);
      }
    }
    svg.addEventListener("click", (event) => {
      const link = event.target.closest("a.box");
      if (!link) return;
      event.preventDefault();
      choose(link.dataset.face);
      const card = document.getElementById(`face-${link.dataset.face}`);
      card.parentElement.prepend(card); // below the photo on a phone, next to it elsewhere
      card.scrollIntoView({ block: "nearest", behavior: "smooth" });
      card.focus({ preventScroll: true });
    });
    for (const card of document.querySelectorAll(".photo-face")) {
      card.addEventListener("focusin", () => choose(card.id.replace("face-", "")));
    }

    // --- Editing: one box at a time, the one whose fields are open ---

    for (const details of document.querySelectorAll("[data-box]")) {
      details.addEventListener("toggle", () => (details.open ? begin(details) : end(details)));
      details.addEventListener("input", () => editing?.details === details && draw());
      details.querySelector("[data-center]")?.addEventListener("click", () => {
        const side = Math.min(width, height) / 4;
        set([width / 2 - side, height / 2 - side, width / 2 + side, height / 2 + side]);
        editing.group.focus();
      });
    }

    function begin(details) {
      for (const other of document.querySelectorAll("[data-box][open]")) if (other !== details) other.open = false;
      editing?.group.remove();
      const group = svg.appendChild(document.createElementNS(SVG, "g"));
      group.setAttribute("class", "edit");
      group.setAttribute("tabindex", "0");
      group.setAttribute("role", "application");
      group.setAttribute("aria-label", "The box: arrow keys move it, with Shift they change its size");
      for (const name of ["under", "over"]) add(group, "rect", name);
      for (const name of Object.keys(CORNERS)) add(group, "circle", "handle", name);
      for (const name of Object.keys(CORNERS)) add(group, "circle", "grip", name);
      editing = { details, form: details.querySelector("form"), group };
      holder.classList.add("editing");
      draw();
      if (details.dataset.box !== "new") choose(details.dataset.box);
      const { top, bottom } = holder.getBoundingClientRect();
      if (bottom < 200 || top > innerHeight - 200) holder.scrollIntoView({ block: "start", behavior: "smooth" });
      group.addEventListener("keydown", step);
    }

    function end(details) {
      if (editing?.details !== details) return;
      editing.group.remove();
      editing = null;
      holder.classList.remove("editing");
    }

    const get = () => EDGES.map((edge) => editing.form.elements[edge].valueAsNumber);
    const isBox = ([left, top, right, bottom]) => right - left >= MIN_SIDE && bottom - top >= MIN_SIDE;

    function set(box) {
      EDGES.forEach((edge, index) => (editing.form.elements[edge].value = Math.round(box[index])));
      draw();
    }

    function draw() {
      const box = get();
      editing.group.toggleAttribute("hidden", !isBox(box));
      editing.group.style.display = isBox(box) ? "" : "none";
      if (!isBox(box)) return;
      const [left, top, right, bottom] = box;
      for (const rect of editing.group.querySelectorAll("rect")) {
        const size = { x: left, y: top, width: right - left, height: bottom - top };
        for (const [name, value] of Object.entries(size)) rect.setAttribute(name, value);
      }
      for (const circle of editing.group.querySelectorAll("circle")) {
        const [across, down] = CORNERS[circle.dataset.corner];
        circle.setAttribute("cx", box[across]);
        circle.setAttribute("cy", box[down]);
        circle.setAttribute("r", (circle.classList.contains("grip") ? 22 : 7) * scale());
      }
    }

    function step(event) {
      const by = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
      if (!by) return;
      event.preventDefault();
      const distance = Math.max(1, Math.round(Math.max(width, height) / 200));
      const [left, top, right, bottom] = get();
      const [x, y] = by.map((direction) => direction * distance);
      const box = event.shiftKey ? [left, top, right + x, bottom + y] : moved([left, top, right, bottom], x, y);
      if (isBox(box)) set(box.map(onPhoto));
    }

    // --- With a pointer: drag a corner to resize, the box to move, anywhere else to draw a new one ---

    const onPhoto = (value, index) => Math.min(Math.max(value, 0), index % 2 ? height : width);

    function moved([left, top, right, bottom], x, y) {
      const right_by = Math.min(Math.max(x, -left), width - right);
      const down_by = Math.min(Math.max(y, -top), height - bottom);
      return [left + right_by, top + down_by, right + right_by, bottom + down_by];
    }

    svg.addEventListener("pointerdown", (event) => {
      if (!editing || event.button || !event.isPrimary) return;
      event.preventDefault();
      const before = get();
      const [x, y] = position(event);
      const corner = event.target.dataset?.corner;
      const inside = isBox(before) && event.target.closest?.(".edit");
      svg.setPointerCapture(event.pointerId);

      function drag(now) {
        const [toX, toY] = position(now);
        if (corner) {
          const box = [...before];
          const [across, down] = CORNERS[corner];
          box[across] += toX - x;
          box[down] += toY - y;
          set(upright(box).map(onPhoto));
        } else if (inside) set(moved(before, toX - x, toY - y));
        else set(upright([x, y, toX, toY]).map(onPhoto));
      }
      function drop() {
        svg.removeEventListener("pointermove", drag);
        for (const kind of ["pointerup", "pointercancel"]) svg.removeEventListener(kind, drop);
        if (!isBox(get())) {
          EDGES.forEach((edge, index) => (editing.form.elements[edge].value = isBox(before) ? Math.round(before[index]) : ""));
          draw();
        }
        editing.group.focus({ preventScroll: true });
      }
      svg.addEventListener("pointermove", drag);
      for (const kind of ["pointerup", "pointercancel"]) svg.addEventListener(kind, drop);
    });

    const upright = ([left, top, right, bottom]) => [Math.min(left, right), Math.min(top, bottom), Math.max(left, right), Math.max(top, bottom)];

    function position(event) {
      const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
      return [onPhoto(point.x, 0), onPhoto(point.y, 1)];
    }
  }

  function add(group, kind, name, corner) {
    const element = group.appendChild(document.createElementNS(SVG, kind));
    element.setAttribute("class", corner ? `${name} ${corner}` : name);
    if (corner) element.dataset.corner = corner;
  }
})();
