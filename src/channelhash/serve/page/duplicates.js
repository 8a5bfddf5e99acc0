// Groups of near-duplicates, a row each.

import { addressOf, bitsWord, element, picture } from "./draw.js";
import { fetched } from "./requests.js";

const [form, radius, status, error, groups] = ["form", "radius", "status", "error", "groups"].map((id) => document.getElementById(id));

const card = (id, distance) => element(
  "figure", {}, picture({ id, text: "", image: addressOf(id, 256).split("?")[0] }, 256), element("figcaption", {}, `${bitsWord(distance)}: ${id}`),
);

function row(ids, distances, size) {
  const more = size > ids.length ? `, the first ${ids.length} of them` : "";
  const cards = element("div", { className: "cards", tabIndex: 0, role: "group", "aria-label": `${size} items` }, ...ids.map((id, place) => card(id, distances[place])));
  return element("li", {}, element("p", { className: "status" }, `${size} items${more}`), cards);
}

async function find() {
  error.hidden = true;
  status.textContent = "Looking for near-duplicates …";
  groups.replaceChildren();
  try {
    const found = await fetched(radius.value ? `duplicates?radius=${encodeURIComponent(radius.value)}` : "duplicates");
    const first = found.found > found.groups.length ? `, the first ${found.groups.length} of them` : "";
    const within = found.radius === null ? "" : ` within ${bitsWord(found.radius)}`;
    status.textContent = found.found ? `${found.found} groups${within}${first}` : "No two items are near-duplicates.";
    groups.append(...found.groups.map((ids, place) => row(ids, found.distances[place], found.sizes[place])));
  } catch (problem) {
    [status.textContent, error.textContent, error.hidden] = ["", problem.message, false];
  }
}

form.addEventListener("submit", (event) => { event.preventDefault(); find(); });
find();
