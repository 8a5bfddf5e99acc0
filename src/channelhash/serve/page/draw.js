// Drawing: elements, pictures, and codes as strips of bits.

import { showPicture } from "./requests.js";

const SVG = "http://www.w3.org/2000/svg";

/** An element with properties, attributes and children; text is always text, never markup. */
export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in made) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

/** An element of a drawing. */
export function shape(tag, attributes, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** A button that does something. */
export function button(words, act, properties = {}) {
  const made = element("button", { type: "button", className: "plain", ...properties }, words);
  made.addEventListener("click", act);
  return made;
}

/** "1 bit", "7 bits". */
export const bitsWord = (count) => (count === 1 ? "1 bit" : `${count} bits`);

/** A number with separators. */
export const count = (number) => number.toLocaleString("en");

/** What an item is called: its text, or its id. */
export const nameOf = (item) => item.text || item.id;

/** The address of an item's picture. */
export const addressOf = (id, size) => `images/${encodeURIComponent(id)}?size=${size}`;

/** The picture of an item, or its words where there is none. */
export function picture(item, size) {
  if (!item.image) return element("span", { className: "words" }, nameOf(item));
  const img = element("img", { alt: item.text || `picture ${item.id}`, decoding: "async", ...(item.width ? { width: item.width, height: item.height } : {}) });
  img.addEventListener("error", () => img.replaceWith(element("span", { className: "words" }, nameOf(item))));
  showPicture(img, `${item.image}?size=${size}`);
  return img;
}

/** The first n bits of a code in hexadecimal digits, most significant first. */
const bitsOf = (code, n) => Array.from({ length: n }, (_, i) => (parseInt(code[i >> 2], 16) >> (3 - (i & 3))) & 1);

/** A code as a strip, ones tall and zeros short; bits that differ from the other code are marked. */
export function strip(code, n, other = null) {
  const bits = bitsOf(code, n), reference = other ? bitsOf(other, n) : bits;
  const columns = Math.min(n, 64);
  const differing = bits.flatMap((bit, i) => (bit === reference[i] ? [] : [i + 1]));
  const marked = differing.length ? `differing bits: ${differing.join(", ")}` : "no bit differs";
  const bars = bits.map((bit, i) => shape("rect", {
    x: (i % columns) * 4, y: Math.floor(i / columns) * 14 + (bit ? 0 : 7), width: 3, height: bit ? 12 : 5,
    class: `${bit ? "one" : "zero"}${bit === reference[i] ? "" : " differs"}`,
  }));
  return shape("svg", {
    class: "strip", viewBox: `0 0 ${columns * 4 - 1} ${Math.ceil(n / columns) * 14 - 2}`, preserveAspectRatio: "none",
    role: "img", "aria-label": other ? `code of ${n} bits, ${marked}` : `code of ${n} bits`,
  }, ...bars);
}

/** How near an answer is: a bar that is full where half of the bits differ, and the code; nothing of what has no distance. */
export function nearness(item, answer) {
  if (item.distance === undefined || item.distance === null) return [];
  const fill = element("span");
  fill.style.width = `${Math.min(100, (200 * item.distance) / answer.n_bits)}%`;
  const bar = element("span", { className: "bar", "aria-hidden": "true" }, fill);
  const title = `${item.distance} of ${answer.n_bits} bits differ`;
  return [element("p", { className: "distance", title }, bar, bitsWord(item.distance)), strip(item.code, answer.n_bits, answer.query_code)];
}
