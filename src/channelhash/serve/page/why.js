// Drawing: why two items match. Bits with their meanings, the picture's parts and the words that matter.

import { bitsWord, element } from "./draw.js";
import { showPicture } from "./requests.js";

const SVG = "http://www.w3.org/2000/svg";
const MEANINGS_SHOWN = 3;
const HEIGHT = 340; // pixels of a picture under its map, as long as its width has room
const LEAST = 0.25; // bits; a weaker map is noise, its colours are not scaled up to full

/** What holds the pair together in one colour, what parts it in another; opacity is the influence. */
function overlay(map) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", "heat");
  svg.setAttribute("viewBox", `0 0 ${map.columns} ${map.rows}`);
  svg.setAttribute("preserveAspectRatio", "none");
  const largest = Math.max(LEAST, ...map.influence.flat().map(Math.abs));
  map.influence.forEach((row, y) => row.forEach((value, x) => {
    const cell = document.createElementNS(SVG, "rect");
    const place = { x, y, width: 1, height: 1, class: value > 0 ? "together" : "apart", "fill-opacity": (0.75 * Math.abs(value) / largest).toFixed(3) };
    for (const [name, number] of Object.entries(place)) cell.setAttribute(name, number);
    svg.append(cell);
  }));
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", mapWords(map));
  return svg;
}

/** The map in words: where the strongest cell lies. */
function mapWords(map) {
  let best = { value: -Infinity };
  map.influence.forEach((row, y) => row.forEach((value, x) => { if (value > best.value) best = { value, x, y }; }));
  if (best.value <= 0) return "No part of the picture holds the pair together.";
  const third = (at, of) => Math.min(2, Math.floor((3 * (at + 0.5)) / of));
  const row = ["top", "middle", "bottom"][third(best.y, map.rows)], column = ["left", "centre", "right"][third(best.x, map.columns)];
  const bits = map.strongest.length ? ` Hiding the part that matters most flips ${bitsWord(map.strongest.length)} of the picture.` : "";
  return `The ${row} ${column} holds the pair together most: ${signed(best.value)} bits when hidden.${bits}`;
}

const signed = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(1)}`;

/** A picture under its map, with a button that takes the map away. */
function mapped(side, src) {
  const heat = overlay(side.map);
  const toggle = element("button", { type: "button", className: "plain", "aria-pressed": "true" }, "Colours");
  toggle.addEventListener("click", () => {
    const shown = toggle.getAttribute("aria-pressed") === "true";
    toggle.setAttribute("aria-pressed", String(!shown));
    heat.classList.toggle("off", shown);
  });
  const img = element("img", { alt: `picture ${side.name}` });
  img.addEventListener("load", () => { img.style.width = `${(HEIGHT * img.naturalWidth) / img.naturalHeight}px`; });
  showPicture(img, src);
  return element(
    "figure", {},
    element("div", { className: "mapped" }, img, heat),
    element("figcaption", {}, mapWords(side.map), " ", toggle),
  );
}

function words(side) {
  const largest = Math.max(LEAST, ...side.words.map((word) => Math.abs(word.influence)));
  const rows = side.words.map((word) => {
    const fill = element("span", { className: word.influence > 0 ? "together" : "apart" });
    fill.style.width = `${(100 * Math.abs(word.influence)) / largest}%`;
    return element(
      "li", {},
      element("span", { className: "word" }, word.word),
      element("span", { className: "bar", "aria-hidden": "true" }, fill),
      element("span", { className: "figure" }, signed(word.influence)),
      element("small", {}, word.flips.length ? `flips ${bitsWord(word.flips.length)}` : "flips none"),
    );
  });
  return element("div", {}, element("h3", {}, "Bits farther without a word"), element("ol", { className: "influences" }, ...rows));
}

/** What a bit's value (the first item's) speaks for and against. */
function meaning(bit) {
  const sign = bit.values[0] ? 1 : -1;
  const said = bit.meaning.slice(0, MEANINGS_SHOWN)
    .map(({ label, correlation }) => element("span", { title: `correlation ${correlation.toFixed(2)} with a 1` }, `${sign * correlation > 0 ? "" : "not "}${label}`));
  return said.length ? element("span", { className: "labels" }, ...said) : element("span", { className: "hint" }, "no clear meaning");
}

function bitList(bits) {
  const rows = bits.map((bit) => element(
    "li", {},
    element("b", { title: `values ${bit.values.join(" and ")}` }, `bit ${bit.bit}`),
    meaning(bit),
    element("small", { title: "share of the cosine" }, `${bit.share < 0 ? "−" : "+"}${Math.abs(bit.share).toFixed(2)}`),
  ));
  return element("ol", { className: "bits" }, ...rows);
}

/** Everything about a pair. `pictures` are the addresses of both sides' pictures, null where there is none. */
export function explanation(found, pictures) {
  const strongestFirst = [...found.bits].sort((a, b) => Math.abs(b.share) - Math.abs(a.share));
  const agreeing = strongestFirst.filter((bit) => bit.agrees), differing = strongestFirst.filter((bit) => !bit.agrees);
  const parts = found.sides.flatMap((side, i) => [
    side.map && pictures[i] ? mapped(side, pictures[i]) : null,
    side.words ? words(side) : null,
  ]).filter(Boolean);
  const legend = parts.length ? element(
    "p", { className: "hint legend" },
    element("span", { className: "together" }), " holds the pair together ", element("span", { className: "apart" }), " parts it",
  ) : null;
  return [
    element("p", { className: "whole", role: "status" }, found.summary),
    ...parts,
    legend,
    ...found.remarks.map((remark) => element("p", { className: "hint" }, remark)),
    element("h3", {}, `${bitsWord(agreeing.length)} ${agreeing.length === 1 ? "agrees" : "agree"}`),
    bitList(agreeing),
    differing.length ? element("h3", {}, `${bitsWord(differing.length)} ${differing.length === 1 ? "differs" : "differ"}`) : null,
    differing.length ? bitList(differing) : null,
  ].filter(Boolean);
}
