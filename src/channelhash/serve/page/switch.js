// From one of several stores to another, or to all; a question in words goes along.

import { element } from "./draw.js";
import { fetched } from "./requests.js";

const [, own] = location.pathname.match(/\/stores\/([^/]+)\/$/) ?? [];

/** Offer the stores of this server; what is at `root` lists them. */
export async function offerStores(root) {
  const stores = await fetched(`${root}stores`);
  const select = document.getElementById("store"), name = own && decodeURIComponent(own);
  select.append(...[["", "All stores"], ...stores.map((store) => [store.name, store.name])].map(([value, words]) => element("option", { value, selected: value === (name ?? "") }, words)));
  select.parentElement.hidden = false;
  select.addEventListener("change", () => {
    const q = new URLSearchParams(location.search).get("q");
    location.assign(`${root}${pathOf(select.value)}${q ? `?${new URLSearchParams({ q })}` : ""}`);
  });
  return stores;
}

/** The address of a store's page, or of that of all, from the root. */
export const pathOf = (name) => (name ? `stores/${encodeURIComponent(name)}/` : "");

if (own) offerStores("../../");
