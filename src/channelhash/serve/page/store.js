// What the store holds, and what is going on in it.

import { monthName } from "./asked.js";
import { count, element } from "./draw.js";
import { fetched } from "./requests.js";

const AGAIN = 2000, SELDOM = 10_000; // milliseconds until the server is asked again while it works, and otherwise
const by = (id) => document.getElementById(id);

/** Show how many items there are and what the server is doing; call `changed` after it has written, until that returns true. */
export function follow(info, changed, stale = false) {
  const { loading, indexing, version } = info;
  by("facts").textContent = [info.n_bits ? `${count(info.items)} ${info.items === 1 ? "item" : "items"}` : null, loading.length ? "getting ready" : null].filter(Boolean).join(" · ");
  by("facts").classList.toggle("busy", loading.length > 0);
  sayNew(info, changed);
  setTimeout(async () => {
    if (document.hidden) await new Promise((seen) => document.addEventListener("visibilitychange", seen, { once: true }));
    Object.assign(info, await fetched("info").catch((error) => ({ indexing: null, problem: error.message })));
    const waits = info.indexing !== null && info.shown > 0; // what is shown stays until all is there
    const written = stale || info.version !== version;
    follow(info, changed, written && (waits || !changed()));
  }, loading.length || indexing || stale ? AGAIN : SELDOM);
}

/** Say how far the indexing is, or what is wrong, and offer what is there since items were last shown. */
function sayNew({ indexing, problem, items, shown }, show) {
  by("reading").textContent = indexing?.total ? `Indexing ${count(indexing.done)} of ${count(indexing.total)} photographs` : problem;
  const [line, more] = [by("new"), items - shown];
  line.hidden = !(more > 0);
  line.querySelector("span").textContent = count(more);
  line.querySelector("button").onclick = () => { line.hidden = show(true); };
}

/** Offer the labels, folders, months, cameras and places that there are. */
export async function offerFacets() {
  const facets = await fetched("facets").catch(() => ({}));
  for (const kind of ["label", "folder", "month", "camera", "place"]) {
    const shown = (facets[`${kind}s`] ?? []).map(({ name, count: n }) => element("option", { value: name }, `${kind === "month" ? monthName(name) : name} (${count(n)})`));
    by(kind).replaceChildren(by(kind).options[0], ...shown);
    by(kind).parentElement.hidden = !shown.length;
  }
}
