// The page of all stores: what there is in each, and photographs of all that words find.

import { count, element, nameOf, picture } from "./draw.js";
import { clear, showItems } from "./grid.js";
import { fetched } from "./requests.js";
import { offerStores, pathOf } from "./switch.js";

const PART = 60; // results that are fetched at one time
const NEWEST = 4; // photographs that are shown of each store
const by = (id) => document.getElementById(id);
const q = new URLSearchParams(location.search).get("q")?.trim() ?? "";

/** One store: its name, the number of its items and its newest photographs. */
function card({ name, items }) {
  const pictures = element("span", { className: "newest", "aria-hidden": "true" });
  fetched(`${pathOf(name)}items?limit=${NEWEST}`).then(({ items: newest }) => {
    pictures.append(...newest.map((item) => picture({ ...item, image: item.image && pathOf(name) + item.image }, 256)));
  }, () => {}); // its own page says what is wrong
  return element("li", {}, element("a", { href: pathOf(name) }, pictures, element("strong", {}, name), element("span", {}, `${count(items)} ${items === 1 ? "item" : "items"}`)));
}

/** One result, which leads to the same question in its store. */
function tile(item) {
  const name = `${item.store}: ${nameOf(item)}`;
  const href = `${pathOf(item.store)}?${new URLSearchParams({ q })}#${encodeURIComponent(item.id)}`;
  const caption = item.image ? [element("span", { className: "caption", "aria-hidden": "true" }, nameOf(item))] : [];
  const store = element("span", { className: "alike" }, item.store);
  return element("li", { className: "tile" }, element("a", { href, className: "show", "aria-label": name }, picture(item, 384), ...caption, store));
}

async function fetchNext(offset) {
  try {
    const body = JSON.stringify({ text: q, k: PART, offset, fitting: true });
    const found = await fetched("search", { method: "POST", headers: { "Content-Type": "application/json" }, body });
    if (!offset) sayFound(found);
    return { items: found.results, complete: found.results.length < PART };
  } catch (error) {
    fail(error);
    return null;
  }
}

function sayFound({ results, merged_by: merged, answers, problems }) {
  const far = Object.values(answers).every(({ close }) => close === false);
  by("title").textContent = !results.length ? "Nothing fits" : far ? "Nothing close" : merged === "rank" ? "The best of each store in turn" : "Best first";
  by("status").textContent = Object.entries(problems).map(([name, line]) => `${name} is not searched: ${line}.`).join(" ");
}

function fail(error) {
  clear();
  [by("title").textContent, by("error").textContent] = ["That did not work", error.message];
  by("error").hidden = false;
}

by("words").value = q;
try {
  const stores = await offerStores("");
  const total = stores.reduce((sum, { items }) => sum + items, 0);
  by("facts").textContent = `${count(stores.length)} stores · ${count(total)} ${total === 1 ? "item" : "items"}`;
  if (q) {
    document.title = `${q} · channelhash`;
    by("title").textContent = "Searching…";
    await showItems({ fetchNext, draw: tile, codes: false, lines: () => new Map() });
  } else {
    by("stores").append(...stores.map(card));
    by("stores").hidden = false;
  }
} catch (error) {
  fail(error);
}
