// One photograph: large, with what is known of it and the ways on. Arrow keys and swipes lead to its neighbours.

import { alikeWithin, monthName, narrowed } from "./asked.js";
import { addressOf, button, count, element, nameOf, nearness, picture } from "./draw.js";
import { focusItem, items, more } from "./grid.js";
import { fetched, showPicture } from "./requests.js";
import { explanation } from "./why.js";

const SWIPE = 50; // pixels
const LARGE = 1280; // pixels of a long side
const dialog = document.getElementById("photo");
let place = 0; // of the item that is shown
let page = null; // what the page gives: {info, answer, ask, narrow, where, explain}
let explaining = null; // stops the explanation under way
let touched = null; // where a finger came down

/** Show an item of the grid. */
export function openPhoto(at, given, why = false) {
  page = given;
  draw(at);
  if (!dialog.open) {
    history.pushState({ photo: true }, ""); // so that back closes it
    dialog.showModal();
  }
  if (why) showWhy();
}

/** Show a neighbour, and fetch more before the last one is reached. */
async function step(by) {
  if (place + by >= items.length - 3) await more();
  if (items[place + by]) draw(place + by);
}

function draw(at) {
  explaining?.abort();
  const focused = document.activeElement?.dataset.step;
  place = at;
  const item = items[at];
  const move = (by, sign, words) => button(sign, () => step(by), { className: `step ${words.toLowerCase()}`, "aria-label": words, "data-step": by, disabled: !items[at + by] });
  dialog.setAttribute("aria-label", nameOf(item));
  dialog.replaceChildren(
    button("×", () => dialog.close(), { className: "plain shut", "aria-label": "Close" }),
    element("figure", {}, move(-1, "‹", "Previous"), picture(item, LARGE), move(1, "›", "Next")),
    element("div", { className: "about" }, ...about(item)),
  );
  if (items[at + 1]?.image) picture(items[at + 1], LARGE); // so that it is here when it is asked for
  (dialog.querySelector(`[data-step="${focused}"]:enabled`) ?? dialog.querySelector(".shut")).focus();
}

/** Caption, labels, date, folder, what the camera wrote, and ways on. */
function about(item) {
  const narrowers = item.labels.map((label) => button(label, () => page.narrow({ labels: [label] }), { className: "chip" }));
  const month = item.date?.slice(0, 7), folder = item.id.includes("/") ? item.id.replace(/\/[^/]*$/, "") : "";
  if (month) narrowers.push(button(item.date.length > 7 ? `${Number(item.date.slice(8, 10))} ${monthName(month)}` : monthName(month), () => page.narrow({ month }), { className: "chip" }));
  for (const key of ["camera", "place"]) {
    const value = item.metadata[key];
    if (typeof value === "string") narrowers.push(button(value, () => page.narrow({ where: narrowed(page.where, key, value) }), { className: "chip" }));
  }
  if (folder) narrowers.push(button(folder, () => page.narrow({ folder }), { className: "chip" }));
  return [
    element("h2", {}, nameOf(item)),
    tagsOf(item.metadata),
    item.metadata.ocr ? element("p", { className: "lines", role: "group", tabIndex: 0, "aria-label": "Text in the picture" }, item.metadata.ocr) : null,
    narrowers.length ? element("div", { className: "chips", role: "group", "aria-label": "Only those of" }, ...narrowers) : null,
    element("div", { className: "ways" }, ...ways(item)),
    element("section", { className: "why", "aria-label": "Why this one", "aria-live": "polite" }),
    item.image ? placeOf(item) : null,
    detailsOf(item),
  ].filter(Boolean);
}

/** Title, stars, lens and where it was, a line each. */
function tagsOf({ title, rating, lens, focal_length: focal, place, country, lat, lon }) {
  const lines = [title, [lens, typeof focal === "number" ? `${Number(focal.toFixed(1))} mm` : null].filter(Boolean).join(" · ")].filter(Boolean).map((line) => element("p", {}, String(line)));
  if (rating === -1) lines.push(element("p", {}, "Rejected"));
  else if ([1, 2, 3, 4, 5].includes(rating)) lines.push(element("p", { role: "img", "aria-label": `${rating} of 5 stars` }, "★".repeat(rating) + "☆".repeat(5 - rating)));
  const named = [place, country].filter(Boolean).join(", ");
  if (typeof lat === "number" && typeof lon === "number") lines.push(element("p", {}, `${named ? `${named} · ` : ""}${lat.toFixed(5)}, ${lon.toFixed(5)}`));
  return lines.length ? element("div", { className: "tags" }, ...lines) : null;
}

function ways(item) {
  const { info, answer, ask } = page;
  const searched = answer?.modality ?? (info.codes.image ? "image" : "text");
  const other = searched === "image" ? "text" : "image";
  const has = (modality) => (item.modalities ?? [item.image ? "image" : "text"]).includes(modality);
  const named = (modality) => (modality === "image" ? { by: null, in: null } : { by: modality, in: modality });
  const found = [];
  if (has(searched)) found.push(button("More like this", () => ask({ id: item.id, ...named(searched) })));
  if (has(searched) && info.codes[other]) found.push(button(other === "text" ? "Texts of this" : "Pictures for this", () => ask({ id: item.id, by: searched, in: other })));
  if (has("image") && item.image && info.n_bits) {
    const alike = item.duplicates?.length ? ` (${count(item.duplicates.length)})` : "";
    found.push(button(`Duplicates${alike}`, () => ask({ id: item.id, r: alikeWithin(info) })));
  }
  if (answer && item.distance !== null) found.push(button("Why this one?", showWhy));
  if (item.image) found.push(button("Original", () => showPicture(dialog.querySelector("figure img"), `originals/${encodeURIComponent(item.id)}`)));
  return found;
}

/** Where a photograph lies: the whole path for the person at the server's machine, who can look at its folder. */
function placeOf(item) {
  const path = element("code", {}, item.id), place = element("div", { className: "place ways" }, path);
  const reveal = (show) => fetched("reveal", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ id: item.id, show }) });
  const open = () => reveal(true).catch((error) => place.append(element("p", { className: "error", role: "alert" }, error.message)));
  const copy = async ({ target }) => {
    await navigator.clipboard.writeText(path.textContent);
    target.textContent = "Copied";
  };
  if (navigator.clipboard) place.append(button("Copy path", copy)); // which pages have over HTTPS or on loopback
  if (page.info.local) {
    reveal(false).then((found) => {
      path.textContent = found.path;
      place.append(button("Show in folder", open));
    }, () => {}); // a server behind a proxy tells nobody
  }
  return place;
}

/** What a machine knows of an item: its hash is asked for when it is looked at. */
function detailsOf(item) {
  const facts = element("dl"), code = element("div");
  const known = { id: item.id, ...(item.date ? { date: item.date } : {}), ...item.metadata, ocr: null };
  for (const [name, value] of Object.entries(known)) if (value !== null) facts.append(element("dt", {}, name), element("dd", {}, String(value)));
  const shown = element("details", {}, element("summary", {}, "Details"), facts, code);
  shown.addEventListener("toggle", async () => {
    if (!shown.open || code.firstChild) return;
    const { codes } = await fetched(`items/${encodeURIComponent(item.id)}`).catch(() => ({ codes: {} }));
    for (const [modality, hex] of Object.entries(codes)) facts.append(element("dt", {}, `${modality} hash`), element("dd", {}, element("code", {}, hex)));
    code.append(...(page.answer ? nearness(item, page.answer) : []));
  });
  return shown;
}

async function showWhy() {
  explaining?.abort();
  explaining = new AbortController();
  const { signal } = explaining, item = items[place], section = dialog.querySelector(".why");
  section.replaceChildren(element("p", { className: "hint" }, "Hiding parts and leaving out words…"));
  try {
    const { found, asking } = await page.explain(item, signal);
    section.replaceChildren(...explanation(found, [asking, addressOf(item.id, 640)]));
  } catch (error) {
    if (error.name !== "AbortError") section.replaceChildren(element("p", { className: "error", role: "alert" }, error.message));
  }
}

dialog.addEventListener("keydown", (event) => {
  const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!by) return;
  event.preventDefault();
  step(by);
});
dialog.addEventListener("touchstart", ({ touches: [finger] }) => { touched = finger; }, { passive: true });
dialog.addEventListener("touchend", ({ changedTouches: [finger] }) => {
  const across = finger.clientX - touched.clientX, down = finger.clientY - touched.clientY;
  if (Math.abs(across) > SWIPE && Math.abs(across) > 2 * Math.abs(down)) step(across < 0 ? 1 : -1);
});
dialog.addEventListener("click", ({ target }) => { if (target === dialog) dialog.close(); });
dialog.addEventListener("close", () => {
  explaining?.abort();
  if (history.state?.photo) history.back();
  focusItem(place);
});
