// What a person does on the page: typing, dropping, pasting, choosing.

import { hasQuestion, narrowed, readState, writeState } from "./asked.js";
import { takeAway } from "./save.js";
import { asked, go, info, searchPicture, show } from "./script.js";
import "./switch.js";

const by = (id) => document.getElementById(id);
const form = by("form"), words = by("words"), file = by("file"), radius = by("radius");

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const q = words.value.trim();
  const same = q === asked.q ? {} : { all: null, order: asked.q && q ? asked.order : null };
  go({ ...(q || asked.q ? { ...asked, q, ...same } : asked), where: by("where").value.trim() });
});
by("order").addEventListener("change", ({ target: { value } }) => {
  go({ ...asked, order: value === (hasQuestion(asked) ? "best" : "newest") ? null : value, seed: value === "random" ? Math.floor(Math.random() * 1e6) : null });
});
for (const kind of ["label", "folder", "month", "camera", "place"]) {
  by(kind).addEventListener("change", ({ target }) => {
    const { value } = target, ofKey = kind === "camera" || kind === "place";
    go({ ...asked, ...(kind === "label" ? { labels: [...new Set([...asked.labels, value])] } : ofKey ? { where: narrowed(asked.where, kind, value) } : { [kind]: value }) });
    target.selectedIndex = 0;
  });
}
by("filter").addEventListener("click", ({ target }) => target.setAttribute("aria-expanded", String(by("controls").classList.toggle("open"))));
by("unlikely").addEventListener("click", () => go({ ...asked, all: "1" }));
radius.addEventListener("change", () => go({ ...asked, r: Number(radius.value) < Number(radius.max) ? Number(radius.value) : null }));
by("modalities").addEventListener("change", ({ target: { value } }) => go({ ...asked, by: null, in: value === "image" ? null : value }));
by("codes").addEventListener("click", () => go({ ...asked, codes: asked.codes ? null : "1" }));
for (const kind of ["csv", "json"]) by(kind).addEventListener("click", () => takeAway(kind));
by("choose").addEventListener("click", () => file.click());
file.addEventListener("change", () => {
  if (file.files.length) searchPicture(file.files[0]);
  file.value = "";
});

const dragging = (on) => document.body.classList.toggle("dragging", on);
document.addEventListener("dragover", (event) => {
  if (![...event.dataTransfer.types].includes("Files")) return;
  event.preventDefault();
  dragging(true);
});
document.addEventListener("dragleave", (event) => { if (event.relatedTarget === null) dragging(false); });
for (const way of ["drop", "paste"]) {
  document.addEventListener(way, (event) => {
    const { files } = event.dataTransfer ?? event.clipboardData;
    if (way === "drop") event.preventDefault();
    dragging(false);
    if (files.length) searchPicture(files[0]);
  });
}
document.addEventListener("keydown", (event) => {
  const typing = event.target.matches("input:not([type=radio]):not([type=range]), select");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey && !document.querySelector("dialog[open]")) {
    event.preventDefault();
    words.focus();
    words.select();
  } else if (event.key === "Escape" && event.target === words) {
    words.value = "";
    words.blur();
  }
});
window.addEventListener("popstate", ({ state }) => {
  if (!state?.photo) by("photo").close();
  const then = readState(location.search);
  if (info && writeState(then) !== writeState(asked)) show(then); // before it is here, start() will read the address
});
