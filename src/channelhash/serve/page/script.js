// The page: what is asked stands in the address, so that a search can be shared and the back button works.

import { bitsWord, card, details, element, nameOf, picture, skeleton, strip } from "./draw.js";
import { fetched } from "./requests.js";
import { explanation } from "./why.js";

const DEFAULT_K = 24;
const LABELS_SHOWN = 14;
const by = (id) => document.getElementById(id);
const form = by("form"), words = by("words"), file = by("file"), radius = by("radius"), where = by("where");

let info = null; // what the server searches and allows
let labels = {}; // label -> number of items
let allLabels = false; // whether the long tail of labels is shown
let asked = readState(location.search); // the state of the search that is shown
let running = null; // stops the search under way
let explaining = null; // stops the explanation under way
const previews = new Map(); // code -> address of a picture that was searched with here
const uploads = new Map(); // code -> that picture's file

// The address. -----------------------------------------------------------------------------------

/** What is asked, from an address. */
function readState(search) {
  const given = new URLSearchParams(search);
  return {
    q: given.get("q") ?? "", id: given.get("id"), code: given.get("code"),
    by: given.get("by"), in: given.get("in"), k: Number(given.get("k")) || DEFAULT_K,
    r: given.has("r") ? Number(given.get("r")) : null,
    labels: given.getAll("label"), where: given.get("where") ?? "",
  };
}

function writeState(state) {
  const parts = new URLSearchParams();
  for (const name of ["q", "id", "code", "by", "in", "where"]) if (state[name]) parts.set(name, state[name]);
  if (state.k !== DEFAULT_K) parts.set("k", state.k);
  if (state.r !== null) parts.set("r", state.r);
  for (const label of state.labels) parts.append("label", label);
  const search = parts.toString();
  return search ? `?${search}` : location.pathname;
}

const hasQuestion = (state) => Boolean(state.q.trim() || state.id !== null || state.code);

/** The modality that is searched where nobody says; words are then answered by all that the store has. */
const usual = () => (info.codes.image ? "image" : "text");

/** The controls as a state; what asks is kept from the state that is shown. */
function controls() {
  const modality = form.elements.modality.value;
  return {
    ...asked, in: modality && modality !== usual() ? modality : null, k: Number(by("k").value), where: where.value.trim(),
    r: Number(radius.value) < Number(radius.max) ? Number(radius.value) : null,
  };
}

/** Another question with the same controls. */
function ask(question) {
  by("item").close();
  go({ ...controls(), q: "", id: null, code: null, by: null, ...question });
}

/** Show a state, as soon as the server has said what it searches. */
async function go(state) {
  await started;
  if (!info) return; // it did not answer, and the page says so
  history.pushState(null, "", writeState(state));
  show(state);
  window.scrollTo({ top: 0 });
}

// Requests. --------------------------------------------------------------------------------------

/** Label chips and the free filter as one condition. */
function condition(state) {
  const quoted = state.labels.map((label) => `'${label.replaceAll("'", "''")}'`);
  const parts = [];
  if (quoted.length) parts.push(`label IN (${quoted.join(", ")})`);
  if (state.where) parts.push(quoted.length ? `(${state.where})` : state.where);
  return parts.join(" AND ") || null;
}

function searchBody(state) {
  const question = state.id !== null ? { id: state.id, query_modality: state.by }
    : state.code ? { code: state.code } : { text: state.q };
  return { ...question, modality: state.in, k: state.k, radius: state.r, where: condition(state) };
}

function search(state, signal) {
  const body = JSON.stringify(searchBody(state));
  return fetched("search", { method: "POST", headers: { "Content-Type": "application/json" }, body, signal });
}

/** Search with a picture: the server gives its code, and the code is what stands in the address. */
async function searchPicture(picked) {
  await started;
  if (!info) return;
  if (!info.asks.includes("image")) return fail(new Error("This server cannot encode pictures; search with words."));
  if (picked.size > info.limits.upload_bytes) {
    return fail(new Error(`This picture has ${(picked.size / 1e6).toFixed(1)} MB; the server takes at most ${info.limits.upload_bytes / 1e6} MB.`));
  }
  wait(controls().k);
  const upload = new FormData();
  upload.append("image", picked);
  upload.append("k", "1");
  try {
    const { query_code: code } = await fetched("search/image", { method: "POST", body: upload });
    previews.set(code, URL.createObjectURL(picked));
    uploads.set(code, picked);
    words.value = "";
    ask({ code });
  } catch (error) {
    fail(error);
  }
}

/** Why an item answers what is asked; of an uploaded picture while this page is open, of its bare code afterwards. */
function explain(state, answer, item, signal) {
  const file = state.id === null ? uploads.get(state.code) : undefined;
  if (file) {
    const upload = new FormData();
    for (const [name, value] of Object.entries({ image: file, id: item.id, modality: answer.modality })) upload.append(name, value);
    return fetched("explain/image", { method: "POST", body: upload, signal });
  }
  const first = state.id !== null ? { id: state.id, modality: answer.query_modality } : state.code ? { code: state.code } : { text: state.q };
  const body = JSON.stringify({ first, second: { id: item.id, modality: answer.modality } });
  return fetched("explain", { method: "POST", headers: { "Content-Type": "application/json" }, body, signal });
}

// Showing. ---------------------------------------------------------------------------------------

/** Put the controls as a state says, and search if it asks something. */
async function show(state) {
  asked = state;
  running?.abort();
  setControls(state);
  if (!hasQuestion(state)) return welcome();
  running = new AbortController();
  const { signal } = running;
  wait(state.k);
  try {
    const [answer, item] = await Promise.all([
      search(state, signal),
      state.id === null ? null : fetched(`items/${encodeURIComponent(state.id)}`, { signal }),
    ]);
    drawQuery(state, answer, item);
    drawAnswer(answer);
  } catch (error) {
    if (error.name !== "AbortError") fail(error);
  }
}

function setControls(state) {
  document.title = state.q ? `${state.q} · channelhash` : "channelhash";
  words.value = state.q;
  by("k").value = state.k;
  if (by("k").value !== String(state.k)) { // a number from an address of one's own
    by("k").append(element("option", {}, String(state.k)));
    by("k").value = state.k;
  }
  radius.value = state.r ?? radius.max;
  sayRadius();
  where.value = state.where;
  if (state.where) openFilter(true);
  const modality = state.in ?? usual();
  for (const radio of form.elements.modality) radio.checked = radio.value === modality;
  drawLabels(state);
}

function sayRadius() {
  const value = Number(radius.value);
  by("radius-words").value = value < Number(radius.max) ? bitsWord(value) : "any distance";
}

function openFilter(open) {
  by("where-line").hidden = !open;
  by("filter").setAttribute("aria-expanded", String(open));
}

function drawLabels(state) {
  by("labels").hidden = !hasQuestion(state); // nothing to narrow yet
  const names = Object.keys(labels);
  const shown = allLabels ? names : [...new Set([...state.labels, ...names.slice(0, LABELS_SHOWN)])];
  const chips = shown.map((label) => {
    const chosen = state.labels.includes(label);
    const count = element("small", {}, (labels[label] ?? 0).toLocaleString("en"));
    const chip = element("button", { type: "button", className: "chip", "aria-pressed": String(chosen) }, label, " ", count);
    chip.addEventListener("click", () => {
      const others = state.labels.filter((other) => other !== label);
      go({ ...controls(), labels: chosen ? others : [...others, label] });
    });
    return chip;
  });
  if (names.length > LABELS_SHOWN) {
    const rest = element("button", { type: "button", className: "quiet" }, allLabels ? "fewer" : `all ${names.length} labels`);
    rest.addEventListener("click", () => { allLabels = !allLabels; drawLabels(asked); });
    chips.push(rest);
  }
  const focused = document.activeElement?.closest?.("#labels") ? document.activeElement.firstChild.textContent : null;
  by("labels").replaceChildren(...chips);
  chips.find((chip) => chip.firstChild.textContent === focused)?.focus();
}

function wait(count) {
  clear();
  by("status").textContent = "Searching…";
  by("results").setAttribute("aria-busy", "true");
  by("results").replaceChildren(...skeleton(Math.min(count, 12)));
}

function clear() {
  by("error").hidden = true;
  by("welcome").hidden = true;
  by("results").removeAttribute("aria-busy");
  by("results").replaceChildren();
  by("status").textContent = "";
}

function fail(error) {
  clear();
  by("query").hidden = true;
  by("error").textContent = error.message;
  by("error").hidden = false;
}

function drawQuery(state, answer, item) {
  const from = item ? picture(item, 128)
    : previews.has(state.code) ? element("img", { src: previews.get(state.code), alt: "the picture searched with" }) : null;
  const searched = answer.modality === "image" ? "pictures" : "texts";
  let title;
  if (item) {
    const asking = answer.query_modality === answer.modality ? "like" : answer.modality === "text" ? "of" : "for";
    title = element("p", {}, `${searched[0].toUpperCase()}${searched.slice(1)} ${asking} `, element("b", {}, nameOf(item)));
  } else if (state.code) {
    title = element("p", {}, `${searched[0].toUpperCase()}${searched.slice(1)} near `, element("b", {}, from ? "your picture" : "a code"));
  } else {
    title = element("p", {}, `${searched[0].toUpperCase()}${searched.slice(1)} for `, element("b", {}, `“${state.q}”`));
  }
  const shown = answer.query_code
    ? [strip(answer.query_code, answer.n_bits), element("small", {}, `${answer.n_bits} bits`)]
    : [element("small", { title: answer.note }, "by words alone: a text cannot be compared with the codes of these pictures")];
  const code = element("div", { className: "code" }, ...shown);
  by("query").replaceChildren(...[from, element("div", {}, title, code)].filter(Boolean));
  by("query").hidden = false;
}

function drawAnswer(answer) {
  clear();
  const found = answer.results.length;
  if (!found) {
    by("status").textContent = "Nothing found.";
    const narrow = asked.r !== null || asked.labels.length || asked.where;
    const hint = narrow ? "No item passes the filter within this distance. Allow more bits, or fewer conditions."
      : info.items ? "No item has any of these words." : "The store is empty.";
    const wider = element("button", { type: "button", className: "plain" }, "Search everything");
    wider.addEventListener("click", () => go({ ...asked, r: null, labels: [], where: "" }));
    by("welcome").replaceChildren(element("p", {}, hint), ...(narrow ? [wider] : []));
    by("welcome").hidden = false;
    return;
  }
  const milliseconds = answer.seconds * 1000;
  const time = milliseconds < 10 ? milliseconds.toFixed(1) : milliseconds.toFixed(0);
  const answers = `${found} ${found === 1 ? "answer" : "answers"}`;
  by("status").textContent = `${answer.close === false ? `Nothing close; ${answers} from farther off` : answers} in ${time} ms`;
  const state = asked;
  const why = (item) => showWhy(state, answer, item);
  const open = (item) => {
    by("item").replaceChildren(...details(item, answer, { ask, close: () => by("item").close(), why }));
    by("item").showModal();
  };
  by("results").classList.toggle("texts", answer.modality === "text");
  by("results").replaceChildren(...answer.results.map((item) => card(item, answer, { ask, open, why })));
}

/** The dialog that says why an item is among the answers. */
async function showWhy(state, answer, item) {
  explaining?.abort();
  explaining = new AbortController();
  const { signal } = explaining;
  by("why-title").textContent = `Why “${nameOf(item)}”?`;
  by("why-body").replaceChildren(element("p", { className: "hint", role: "status" }, "Hiding parts and leaving out words…"));
  if (!by("why").open) by("why").showModal();
  try {
    const found = await explain(state, answer, item, signal);
    const large = (id) => `images/${encodeURIComponent(id)}?size=640`;
    const asking = state.id !== null ? large(state.id) : previews.get(state.code) ?? null;
    by("why-body").replaceChildren(...explanation(found, [asking, large(item.id)]));
  } catch (error) {
    if (error.name !== "AbortError") by("why-body").replaceChildren(element("p", { className: "error", role: "alert" }, error.message));
  }
}

function welcome() {
  clear();
  by("query").hidden = true;
  const suggestions = Object.keys(labels).slice(0, 8);
  const parts = [element("p", {}, info.items ? "What are you looking for?" : "The store is empty: add items first.")];
  if (suggestions.length && !words.disabled) {
    const buttons = suggestions.map((label) => {
      const button = element("button", { type: "button", className: "plain" }, label);
      button.addEventListener("click", () => ask({ q: label }));
      return button;
    });
    parts.push(element("p", { className: "hint" }, "For a start:"), element("div", { className: "ways" }, ...buttons));
  }
  by("welcome").replaceChildren(...parts);
  by("welcome").hidden = false;
}

// Events. ----------------------------------------------------------------------------------------

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const q = words.value.trim();
  if (q) ask({ q });
  else if (asked.id !== null || asked.code) go(controls());
  else words.focus();
});
for (const control of [by("k"), radius, by("modalities")]) {
  control.addEventListener("change", () => go({ ...controls(), by: null }));
}
radius.addEventListener("input", sayRadius);
by("filter").addEventListener("click", () => {
  openFilter(by("where-line").hidden);
  if (!by("where-line").hidden) where.focus();
});
by("choose").addEventListener("click", () => file.click());
file.addEventListener("change", () => {
  if (file.files.length) searchPicture(file.files[0]);
  file.value = "";
});

document.addEventListener("dragover", (event) => {
  if (![...event.dataTransfer.types].includes("Files")) return;
  event.preventDefault();
  document.body.classList.add("dragging");
});
document.addEventListener("dragleave", (event) => {
  if (event.relatedTarget === null) document.body.classList.remove("dragging");
});
document.addEventListener("drop", (event) => {
  event.preventDefault();
  document.body.classList.remove("dragging");
  if (event.dataTransfer.files.length) searchPicture(event.dataTransfer.files[0]);
});
document.addEventListener("paste", (event) => {
  if (event.clipboardData.files.length) searchPicture(event.clipboardData.files[0]);
});

document.addEventListener("keydown", (event) => {
  const typing = event.target.matches("input:not([type=radio]):not([type=range]), select");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    words.focus();
    words.select();
  } else if (event.key === "Escape" && event.target === words) {
    words.value = "";
    words.blur();
  } else if (event.key.startsWith("Arrow") && event.target.matches(".show")) {
    moveFocus(event);
  }
});

/** Arrow keys walk over the answers as they stand on the screen. */
function moveFocus(event) {
  const shown = [...document.querySelectorAll(".results .show")];
  const columns = getComputedStyle(by("results")).gridTemplateColumns.split(" ").length;
  const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[event.key];
  const next = shown[shown.indexOf(event.target) + step];
  if (next) {
    event.preventDefault();
    next.focus();
  }
}

by("item").addEventListener("click", (event) => {
  if (event.target === by("item")) by("item").close();
});
by("why").addEventListener("click", (event) => {
  if (event.target === by("why")) by("why").close();
});
by("why-close").addEventListener("click", () => by("why").close());
by("why").addEventListener("close", () => explaining?.abort());
window.addEventListener("popstate", () => show(readState(location.search)));

async function start() {
  try {
    [info, { labels }] = await Promise.all([fetched("info"), fetched("labels")]);
  } catch (error) {
    return fail(error);
  }
  const both = info.codes.image && info.codes.text;
  const kinds = both || !info.codes.text ? "items" : "texts";
  by("facts").textContent = `${info.items.toLocaleString("en")} ${kinds}${info.n_bits ? ` · ${info.n_bits} bits` : ""}`;
  by("modalities").hidden = !both;
  radius.max = info.n_bits ?? 0;
  by("choose").hidden = !info.asks.includes("image");
  if (!info.asks.includes("image")) words.placeholder = "Type words";
  if (!info.asks.includes("text") && !info.words_alone) {
    words.disabled = by("go").disabled = true;
    words.placeholder = info.asks.length ? "Drop a picture" : "This server has no model: open the address of an item";
  }
  const typed = words.value; // while the server had not yet said what it searches
  show(readState(location.search));
  words.value ||= typed;
}

const started = start();
