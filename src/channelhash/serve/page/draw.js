// Drawing: codes as strips of bits, distances as bars, items as cards.

import { showPicture } from "./requests.js";

const SVG = "http://www.w3.org/2000/svg";

/** An element with properties, data attributes and children; text is always text, never markup. */
export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in made) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

/** The first n bits of a code in hexadecimal digits, most significant first. */
export function bitsOf(code, n) {
  const bits = [];
  for (let i = 0; i < n; i++) bits.push((parseInt(code[i >> 2], 16) >> (3 - (i & 3))) & 1);
  return bits;
}

/** A code as a strip, ones tall and zeros short; bits that differ from the other code are marked. */
export function strip(code, n, other = null) {
  const bits = bitsOf(code, n);
  const reference = other ? bitsOf(other, n) : bits;
  const columns = Math.min(n, 64);
  const rows = Math.ceil(n / columns);
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", "strip");
  svg.setAttribute("viewBox", `0 0 ${columns * 4 - 1} ${rows * 14 - 2}`);
  svg.setAttribute("preserveAspectRatio", "none");
  const differing = [];
  bits.forEach((bit, i) => {
    const differs = bit !== reference[i];
    if (differs) differing.push(i + 1);
    const bar = document.createElementNS(SVG, "rect");
    const height = bit ? 12 : 5;
    bar.setAttribute("x", (i % columns) * 4);
    bar.setAttribute("y", Math.floor(i / columns) * 14 + 12 - height);
    bar.setAttribute("width", 3);
    bar.setAttribute("height", height);
    bar.setAttribute("class", `${bit ? "one" : "zero"}${differs ? " differs" : ""}`);
    svg.append(bar);
  });
  svg.setAttribute("role", "img");
  const marked = differing.length ? `differing bits: ${differing.join(", ")}` : "no bit differs";
  svg.setAttribute("aria-label", other ? `code of ${n} bits, ${marked}` : `code of ${n} bits`);
  return svg;
}

/** "1 bit", "7 bits". */
export const bitsWord = (count) => (count === 1 ? "1 bit" : `${count} bits`);

/** A distance as a bar that is full where codes have nothing in common: half of the bits differ. */
function distanceBar(distance, n) {
  const fill = element("span");
  fill.style.width = `${Math.min(100, (200 * distance) / n)}%`;
  const bar = element("span", { className: "bar", "aria-hidden": "true" }, fill);
  return element("p", { className: "distance", title: `${distance} of ${n} bits differ` }, bar, bitsWord(distance));
}

/** What an item is called: its text, or its id. */
export const nameOf = (item) => item.text || item.id;

/** The picture of an item, or its words where there is none. */
export function picture(item, size) {
  if (!item.image) return element("span", { className: "words" }, nameOf(item));
  const img = element("img", { alt: item.text || `picture ${item.id}`, loading: "lazy" });
  img.addEventListener("error", () => img.replaceWith(element("span", { className: "words" }, nameOf(item))));
  showPicture(img, `${item.image}?size=${size}`);
  return img;
}

/** The ways on from an item: [what it is called, what then asks and is searched]. */
function waysOn(item, modality) {
  const ways = [["More like this", { id: item.id, by: modality, in: modality }]];
  if (modality === "image" && item.modalities.includes("text")) {
    ways.push(["Texts of this", { id: item.id, by: "image", in: "text" }]);
  }
  if (modality === "text" && item.modalities.includes("image")) {
    ways.push(["Pictures for this", { id: item.id, by: "text", in: "image" }]);
  }
  return ways;
}

/** The button that asks why an answer is one. */
function whyButton(item, why) {
  const button = element("button", { type: "button", className: "plain", "aria-haspopup": "dialog", "aria-label": `Why does this match: ${nameOf(item)}` }, "Why?");
  button.addEventListener("click", () => why(item));
  return button;
}

function wayButtons(item, modality, ask) {
  const buttons = waysOn(item, modality).map(([words, way]) => {
    const button = element("button", { type: "button", className: "plain", "aria-label": `${words}: ${nameOf(item)}` }, words);
    button.addEventListener("click", () => ask(way));
    return button;
  });
  return element("div", { className: "ways" }, ...buttons);
}

function labelLine(labels) {
  return labels.length ? element("p", { className: "labels" }, ...labels.map((label) => element("span", {}, label))) : null;
}

/** How near an answer is, the button that asks why, and the code; nothing of what words alone have found. */
function nearness(item, answer, why) {
  if (item.distance === null) return [];
  return [
    element("div", { className: "near" }, distanceBar(item.distance, answer.n_bits), whyButton(item, why)),
    strip(item.code, answer.n_bits, answer.query_code),
  ];
}

/** One answer. */
export function card(item, answer, { ask, open, why }) {
  const show = element("button", { type: "button", className: "show", "aria-label": `Details of ${nameOf(item)}` }, picture(item, 384));
  show.addEventListener("click", () => open(item));
  const words = item.image || answer.modality === "text" ? item.text : "";
  return element(
    "li",
    { className: "card" },
    show,
    ...nearness(item, answer, why),
    words ? element("p", { className: "text", title: words }, words) : null,
    labelLine(item.labels),
    wayButtons(item, answer.modality, ask),
  );
}

/** Everything that is known of an answer. */
export function details(item, answer, { ask, close, why }) {
  const facts = element("dl");
  const known = { id: item.id, ...item.metadata, code: item.code };
  for (const [name, value] of Object.entries(known)) {
    facts.append(element("dt", {}, name), element("dd", {}, Array.isArray(value) ? value.join(", ") : String(value)));
  }
  const shut = element("button", { type: "button", className: "plain shut", "aria-label": "Close" }, "×");
  shut.addEventListener("click", close);
  return [
    shut,
    element("figure", {}, picture(item, 640)),
    element(
      "div",
      { className: "about" },
      item.text ? element("p", { className: "whole" }, item.text) : null,
      labelLine(item.labels),
      ...nearness(item, answer, why),
      facts,
      wayButtons(item, answer.modality, ask),
    ),
  ];
}

/** Grey shapes where answers will be. */
export const skeleton = (count) => Array.from({ length: count }, () => element("li", { className: "card waiting", "aria-hidden": "true" }));
