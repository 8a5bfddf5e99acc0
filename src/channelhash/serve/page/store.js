// What the store holds, and what is going on in it.

import { monthName } from "./asked.js";
import { count, element } from "./draw.js";
import { fetched } from "./requests.js";

const AGAIN = 2000, SELDOM = 30_000; // milliseconds until the server is asked again while it works, and otherwise
const by = (id) => document.getElementById(id);

/** Show how many items there are and what the server is doing; call `changed` after it has written, once that returns true. In an empty store show the first items. */
export function follow(info, changed, stale = false) {
  const { loading, indexing, problem } = info;
  by("facts").textContent = [info.n_bits ? `${count(info.items)} ${info.items === 1 ? "item" : "items"}` : null, loading.length ? "getting ready" : null].filter(Boolean).join(" · ");
  by("facts").classList.toggle("busy", loading.length > 0);
  by("reading").textContent = indexing?.stage === "encode" ? `Reading ${count(indexing.done)} of ${count(indexing.total)} new photographs` : problem;
  setTimeout(async () => {
    if (document.hidden) await new Promise((seen) => document.addEventListener("visibilitychange", seen, { once: true }));
    const { items, version } = info;
    Object.assign(info, await fetched("info").catch(() => ({})));
    if (!items && info.items) return location.reload();
    const written = stale || info.version !== version;
    follow(info, changed, written && (info.indexing !== null || !changed()));
  }, loading.length || indexing || stale ? AGAIN : SELDOM);
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
