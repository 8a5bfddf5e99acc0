// What the store holds, and what is going on in it.

import { monthName } from "./asked.js";
import { count, element } from "./draw.js";
import { fetched } from "./requests.js";

const AGAIN = 2000; // milliseconds until the server is asked again
const by = (id) => document.getElementById(id);

/** Show how many items there are and, until the server has loaded everything, that it is getting ready; in an empty store show the first items. */
export function sayBusy(info) {
  const busy = info.loading;
  by("facts").textContent = [info.n_bits ? `${count(info.items)} ${info.items === 1 ? "item" : "items"}` : null, busy.length ? "getting ready" : null].filter(Boolean).join(" · ");
  by("facts").classList.toggle("busy", busy.length > 0);
  if (!busy.length) return;
  setTimeout(async () => {
    const empty = !info.items;
    Object.assign(info, await fetched("info").catch(() => ({})));
    if (empty && info.items) location.reload();
    else sayBusy(info);
  }, AGAIN);
}

/** Offer the labels, folders, months, cameras and places that there are. */
export async function offerFacets() {
  const facets = await fetched("facets").catch(() => ({}));
  for (const kind of ["label", "folder", "month", "camera", "place"]) {
    const shown = (facets[`${kind}s`] ?? []).map(({ name, count: n }) => element("option", { value: name }, `${kind === "month" ? monthName(name) : name} (${count(n)})`));
    by(kind).append(...shown);
    by(kind).parentElement.hidden = !shown.length;
  }
}
