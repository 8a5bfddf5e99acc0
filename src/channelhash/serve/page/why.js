// Why an item is an answer: the words and the parts of the picture that matter, and under Details the bits with their meanings.

import { bitsWord, button, element, shape } from "./draw.js";
import { showPicture } from "./requests.js";

const MEANINGS_SHOWN = 3;
const LEAST = 0.25; // bits; a weaker map is noise, its colours are not scaled up to full

/** What holds the pair together in one colour, what parts it in another; opacity is the influence. */
function overlay(map) {
  const largest = Math.max(LEAST, ...map.influence.flat().map(Math.abs));
  const cells = map.influence.flatMap((row, y) => row.map((value, x) => shape("rect", {
    x, y, width: 1, height: 1, class: value > 0 ? "together" : "apart", "fill-opacity": (0.75 * Math.abs(value) / largest).toFixed(3),
  })));
  return shape("svg", {
    class: "heat", viewBox: `0 0 ${map.columns} ${map.rows}`, preserveAspectRatio: "none", role: "img", "aria-label": placeOf(map),
  }, ...cells);
}

/** Where the part of a picture lies that matters most, in words. */
function placeOf(map) {
  let best = { value: -Infinity };
  map.influence.forEach((row, y) => row.forEach((value, x) => { if (value > best.value) best = { value, x, y }; }));
  if (best.value <= 0) return "No single part of the picture decides.";
  const third = (at, of) => Math.min(2, Math.floor((3 * (at + 0.5)) / of));
  const row = ["top", "middle", "bottom"][third(best.y, map.rows)], column = ["left", "centre", "right"][third(best.x, map.columns)];
  return `The ${row} ${column} of the picture matters most.`;
}

const signed = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(1)}`;

/** A picture under its map, with a button that takes the map away. */
function mapped(side, src) {
  const heat = overlay(side.map);
  const toggle = button("Colours", () => {
    const hidden = heat.classList.toggle("off");
    toggle.setAttribute("aria-pressed", String(!hidden));
  }, { "aria-pressed": "true" });
  const img = element("img", { alt: `picture ${side.name}` });
  showPicture(img, src);
  return element("figure", {}, element("div", { className: "mapped" }, img, heat), element("figcaption", {}, toggle));
}

function words(side) {
  const largest = Math.max(LEAST, ...side.words.map((word) => Math.abs(word.influence)));
  const rows = side.words.map((word) => {
    const fill = element("span", { className: word.influence > 0 ? "together" : "apart" });
    fill.style.width = `${(100 * Math.abs(word.influence)) / largest}%`;
    return element(
      "li", { title: `${signed(word.influence)} bits without it` },
      element("span", { className: "word" }, word.word), element("span", { className: "bar", "aria-hidden": "true" }, fill),
      element("span", { className: "unseen" }, `${signed(word.influence)} bits`),
    );
  });
  return element("ol", { className: "influences", "aria-label": "How much each word matters" }, ...rows);
}

/** What matters, as a person would say it. */
function summary(sides) {
  const lines = [];
  for (const side of sides) {
    const strong = [...side.words ?? []].sort((a, b) => b.influence - a.influence)
      .filter((word, _, [first]) => word.influence > Math.max(LEAST, first.influence / 3)).slice(0, 2);
    if (strong.length) lines.push(`${strong.map((word) => `“${word.word}”`).join(" and ")} ${strong.length > 1 ? "matter" : "matters"} most.`);
    else if (side.words?.length) lines.push("No single word decides.");
    if (side.map) lines.push(placeOf(side.map));
  }
  if (!sides.some((side) => side.map) && sides.some((side) => side.modality === "image")) lines.push("This model cannot show regions.");
  return lines.join(" ");
}

/** What a bit's value (the first item's) speaks for and against. */
function meaning(bit) {
  const sign = bit.values[0] ? 1 : -1;
  const said = bit.meaning.slice(0, MEANINGS_SHOWN).map(({ label, correlation }) => (
    element("span", { title: `correlation ${correlation.toFixed(2)} with a 1` }, `${sign * correlation > 0 ? "" : "not "}${label}`)
  ));
  return said.length ? element("span", { className: "labels" }, ...said) : element("span", { className: "hint" }, "no clear meaning");
}

function bitList(bits, verb) {
  if (!bits.length) return [];
  const rows = bits.map((bit) => element("li", {}, element("b", {}, `bit ${bit.bit}`), meaning(bit), element("small", { title: "share of the cosine" }, `${bit.share < 0 ? "−" : "+"}${Math.abs(bit.share).toFixed(2)}`)));
  return [element("h3", {}, `${bitsWord(bits.length)} ${verb}${bits.length === 1 ? "s" : ""}`), element("ol", { className: "bits" }, ...rows)];
}

/** Everything about a pair. `pictures` are the addresses of both sides' pictures, null where there is none. */
export function explanation(found, pictures) {
  const strongestFirst = [...found.bits].sort((a, b) => Math.abs(b.share) - Math.abs(a.share));
  const parts = found.sides.flatMap((side, i) => [
    side.words?.length ? words(side) : null, side.map && pictures[i] ? mapped(side, pictures[i]) : null,
  ]).filter(Boolean);
  const legend = element("p", { className: "hint legend" }, element("span"), " speaks for it ", element("span", { className: "apart" }), " against it");
  return [
    element("p", { className: "reason" }, summary(found.sides)),
    ...parts, ...(parts.length ? [legend] : []),
    element(
      "details", {}, element("summary", {}, "Bits"),
      ...[found.summary, ...found.remarks].map((line) => element("p", { className: "hint" }, line)),
      ...bitList(strongestFirst.filter((bit) => bit.agrees), "agree"), ...bitList(strongestFirst.filter((bit) => !bit.agrees), "differ"),
    ),
  ];
}
