// The page: what is asked stands in the address, so that a search can be shared and the back button works.

import { chipsOf, DATED, fetchPart, hasQuestion, readState, shownWords, unasked, writeState } from "./asked.js";
import { addressOf, bitsWord, button, count, element, nameOf, nearness, picture } from "./draw.js";
import { clear, focusItem, items, showItems } from "./grid.js";
import { openPhoto } from "./photo.js";
import { fetched, showPicture } from "./requests.js";
import { follow, offerFacets } from "./store.js";

const PART = 60; // items that are fetched at one time
const by = (id) => document.getElementById(id);
const form = by("form"), words = by("words"), radius = by("radius"), where = by("where");

let info = null; // what the server searches and allows
let asked = readState(location.search); // the state that is shown
let running = null; // stops the requests under way
const uploads = new Map(); // code -> a picture's file that was searched with here

/** Show a state, as soon as the server has said what it searches. */
async function go(state) {
  await started;
  if (!info) return; // it did not answer, and the page says so
  by("photo").close();
  history[history.state?.photo ? "replaceState" : "pushState"](null, "", writeState(state));
  window.scrollTo({ top: 0 });
  show(state);
}

/** Ask something else in the same part of the store. */
const ask = (question) => go({ ...unasked(asked), in: null, ...question });

/** Search with a picture, and the words beside it: the server gives its code, which stands in the address. */
async function searchPicture(picked) {
  await started;
  if (!info) return;
  if (!info.asks.includes("image")) return fail(new Error("This server cannot encode pictures; search with words."));
  if (picked.size > info.limits.upload_bytes) {
    return fail(new Error(`This picture has ${(picked.size / 1e6).toFixed(1)} MB; the server takes at most ${info.limits.upload_bytes / 1e6} MB.`));
  }
  const upload = new FormData();
  upload.append("image", picked);
  upload.append("k", "1");
  by("title").textContent = "Looking at your picture…";
  try {
    const { query_code: code } = await fetched("search/image", { method: "POST", body: upload });
    uploads.set(code, picked);
    ask({ code, q: words.value.trim() });
  } catch (error) {
    fail(error);
  }
}

/** Show what a state asks for. */
async function show(state) {
  asked = state;
  info.shown = info.items;
  running?.abort();
  running = new AbortController();
  const { signal } = running;
  setControls(state);
  [by("title").textContent, by("status").textContent] = [hasQuestion(state) ? "Searching…" : "Photographs", ""];
  by("error").hidden = by("unlikely").hidden = true;
  let answer = null;
  const nameAsked = () => (state.id === null ? null : fetched(`items/${encodeURIComponent(state.id)}`, { signal }).then(nameOf));
  const narrow = (change) => go({ ...asked, ...change });
  const open = (place, why) => openPhoto(place, { info, answer, ask, narrow, where: state.where, explain: (item, stop) => explain(state, answer, item, stop) }, why);
  const fetchNext = async (offset) => {
    try {
      const [part, name] = await Promise.all([fetchPart(state, offset, PART, signal), offset ? null : nameAsked()]);
      if (!offset) {
        answer = part.results ? part : null;
        sayFound(state, part, name);
        addRemarks(part);
      }
      if (part.unlikely) by("unlikely").hidden = false;
      return { items: part.items, complete: part.total === undefined ? !part.items.length : offset + part.items.length >= part.total };
    } catch (error) {
      if (error.name !== "AbortError") fail(error);
      return null;
    }
  };
  const draw = (item, place) => tile(item, answer, state.codes, (why) => open(place, why));
  await showItems({ fetchNext, draw, codes: state.codes && hasQuestion(state), lines: () => linesOf(state, answer) });
}

/** One photograph in the grid: its caption on hover or focus; how near its code is where that is asked for. */
function tile(item, answer, codes, open) {
  const caption = element("span", { className: item.quote ? "caption quote" : "caption", "aria-hidden": "true" }, item.quote ? `text in it: “${item.quote}”` : nameOf(item));
  const alike = item.duplicates?.length ? element("span", { className: "alike" }, `+${item.duplicates.length}`) : null;
  const label = `${nameOf(item)}${item.quote ? `, text in it: ${item.quote}` : ""}${alike ? `, and ${item.duplicates.length} alike` : ""}`;
  const shown = element("button", { type: "button", className: "show", "aria-label": label }, picture(item, item.width > 1.7 * item.height ? 640 : 384), ...(item.image ? [caption] : []), ...(alike ? [alike] : []));
  shown.addEventListener("click", () => open(false));
  const near = codes && answer ? nearness(item, answer) : [];
  if (near.length) near[0].append(button("Why?", () => open(true), { "aria-label": `Why this one: ${nameOf(item)}`, "aria-haspopup": "dialog" }));
  return element("li", { className: "tile" }, shown, ...near);
}

/** Why an item answers what is asked; of an uploaded picture while this page is open, of its bare code afterwards. */
async function explain(state, answer, item, signal) {
  const file = state.q ? undefined : uploads.get(state.code);
  const asking = file ? URL.createObjectURL(file) : state.id !== null ? addressOf(state.id, 640) : null;
  if (file) {
    const upload = new FormData();
    for (const [name, value] of Object.entries({ image: file, id: item.id, modality: answer.modality })) upload.append(name, value);
    return { found: await fetched("explain/image", { method: "POST", body: upload, signal }), asking };
  }
  const text = state.q && shownWords(state, answer.understood);
  const first = text ? { text } : state.id !== null ? { id: state.id, modality: answer.query_modality } : { code: state.code };
  const body = JSON.stringify({ first, second: { id: item.id, modality: answer.modality } });
  return { found: await fetched("explain", { method: "POST", headers: { "Content-Type": "application/json" }, body, signal }), asking };
}

function setControls(state) {
  document.title = state.q ? `${state.q} · channelhash` : "channelhash";
  words.value = state.q;
  const question = hasQuestion(state);
  by("order").value = question ? DATED.find((order) => order === state.order) ?? "best" : state.order ?? "newest";
  by("order").parentElement.hidden = question && !state.q;
  for (const option of by("order").options) option.hidden = option.value === "best" ? !question : question && !DATED.includes(option.value);
  by("codes").parentElement.hidden = !hasQuestion(state);
  by("codes").setAttribute("aria-pressed", String(Boolean(state.codes)));
  by("modalities").hidden = !(info.codes.image && info.codes.text);
  radius.max = info.n_bits ?? 0;
  radius.value = state.r ?? radius.max;
  radius.oninput();
  where.value = state.where;
  for (const radio of form.elements.modality) radio.checked = radio.value === (state.in ?? (info.codes.image ? "image" : "text"));
  drawChips(state, []);
}

function drawChips(state, understood, name) {
  const chips = chipsOf(state, understood, name).map(([what, without, from, means]) => {
    const chip = button(what, () => go(without), { className: "chip", title: means ?? "", "aria-label": `${what}: remove` });
    if (from) {
      const img = element("img", { alt: "", onerror: () => img.remove() });
      if (uploads.has(from)) showPicture(img, URL.createObjectURL(uploads.get(from)));
      else if (from === state.id) showPicture(img, addressOf(from, 64));
      chip.prepend(img);
    }
    chip.append(element("span", { "aria-hidden": "true" }, " ×"));
    return chip;
  });
  by("chips").replaceChildren(...chips);
}

/** Where answers become less sure: number of the first of them -> what they are. */
function linesOf(state, answer) {
  if (!answer || DATED.includes(state.order)) return new Map();
  return new Map([[answer.found, "Less likely"], [answer.likely, "Possible"]].filter(([first]) => first));
}

/** Say what was found, and what was understood. */
function sayFound(state, part, name) {
  drawChips(state, part.understood ?? [], name);
  const narrowed = state.labels.length || state.folder || state.month || state.where || part.understood?.some(({ means }) => means);
  by("export").hidden = !part.items.length;
  if (!info.items && info.indexing) {
    by("title").textContent = "Photographs";
    by("status").textContent = "Nothing is indexed yet. The first photographs appear by themselves.";
  } else if (!part.items.length) {
    by("title").textContent = part.unlikely ? "Nothing fits" : info.items ? "Nothing found" : "No photographs yet";
    by("status").textContent = part.unlikely ? "No photograph is likely to show this." : !info.items ? "The store is empty: add items first." : narrowed || state.r !== null ? "Take a condition away." : "No item has any of these words.";
  } else if (part.total !== undefined) {
    by("title").textContent = numberOf(part.total, info.codes.image || !info.codes.text);
  } else {
    const dated = DATED.includes(state.order) || !(part.query_code || shownWords(state, part.understood));
    const order = dated ? "By date" : state.q ? "Best first" : "Most alike first";
    const alone = part.query_code || dated ? "" : " by words alone: a text cannot be compared with the codes of these pictures";
    const number = numberFound(part), sure = sureness(part);
    const shown = number && (dated || !sure) ? order : "";
    by("title").textContent = part.close === false ? "Nothing close" : number || order;
    by("status").textContent = part.close === false ? "These are the least far off." : `${[sure, shown].filter(Boolean).join(" · ")}${alone}`.trim();
  }
}

/** "1 photograph", "23 texts", "60+ photographs". */
const numberOf = (number, isImages, more = "") => `${count(number)}${more} ${isImages ? "photograph" : "text"}${number === 1 ? "" : "s"}`;

/** How many answers there are; empty where every item is one, only more or less alike. */
function numberFound({ found, items: [first], items, modality }) {
  if (found === null && first.fit === null) return "";
  return numberOf(found ?? items.length, modality === "image", found === null && items.length === PART ? "+" : "");
}

/** How sure the answers are: "9 likely, 14 possible"; empty where that is not known. */
function sureness({ found, likely }) {
  if (likely === null || !found) return "";
  return [[likely, "likely"], [found - likely, "possible"]].filter(([number]) => number).map(([number, word]) => `${count(number)} ${word}`).join(", ");
}

/** Offer the question as it may have been meant, and say what of it nobody reads. */
function addRemarks({ did_you_mean: meant, note, query_code: code }) {
  if (note && code) by("status").append(` ${note[0].toUpperCase()}${note.slice(1)}.`);
  if (meant) by("status").append(" Did you mean ", button(`${meant}?`, () => go({ ...asked, q: meant, all: null }), { className: "plain" }));
}

function fail(error) {
  clear();
  [by("title").textContent, by("status").textContent, by("error").textContent] = ["That did not work", "", error.message];
  by("error").hidden = false;
}

/** Show what has been written meanwhile, unless someone is in the middle of something and has not asked for it; whether it is shown. */
function refresh(isAsked = false) {
  const reads = window.scrollY || document.querySelector("dialog[open]") || by("results").contains(document.activeElement) || words.value.trim() !== asked.q;
  if (reads && !isAsked) return false;
  offerFacets();
  show(asked);
  return true;
}

/** Open the photograph that the address names after #, as the page of several stores does. */
function openNamed() {
  const named = decodeURIComponent(location.hash.slice(1));
  const place = items.findIndex(({ id }) => named && id === named);
  if (place < 0) return;
  focusItem(place);
  document.activeElement.click();
}

async function start() {
  try {
    info = await fetched("info");
  } catch (error) {
    return fail(error);
  }
  follow(info, refresh);
  offerFacets();
  by("choose").hidden = !info.asks.includes("image");
  if (!info.asks.includes("image")) words.placeholder = "Type words";
  if (!info.asks.includes("text") && !info.words_alone) {
    words.disabled = by("go").disabled = true;
    words.placeholder = info.asks.length ? "Drop a picture" : "This server has no model: choose a photograph";
  }
  const typed = words.value; // while the server had not yet said what it searches
  show(readState(location.search)).then(openNamed);
  words.value ||= typed;
}
export { asked, fail, go, info, searchPicture, show };
radius.oninput = () => { by("radius-words").value = Number(radius.value) < Number(radius.max) ? bitsWord(Number(radius.value)) : "any distance"; };
const started = start();
