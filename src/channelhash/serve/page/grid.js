// Photographs in rows of about one height, as many as one scrolls to; only those near the screen are in the document.

import { element } from "./draw.js";

const GAP = 6, CODES = 66; // pixels between tiles; pixels for the code under a tile
const ROWS = 10; // of a block, which is in the document as a whole or not at all
const root = document.getElementById("results"), end = document.getElementById("end");

export let items = [];
let fetchMore, drawTile, extra, linesNow; // of what is shown
let laid = 0, current = 0; // items that stand in rows; the item that Tab leads to
let complete = true, loading = null, width = 0;

const near = new IntersectionObserver((entries) => entries.forEach(({ target, isIntersecting }) => {
  if (isIntersecting) fill(target);
  else if (current < target.rows[0].start || current >= target.rows.at(-1).end) target.replaceChildren();
}), { rootMargin: "120% 0px" });
const atEnd = new IntersectionObserver(([entry]) => { if (entry.isIntersecting) more(); }, { rootMargin: "250% 0px" });

/** Show items: `fetchNext(offset)` gives {items, complete}, `draw(item, place)` an item's tile, `lines()` item -> the heading in front of it. */
export async function showItems({ fetchNext, draw, codes, lines }) {
  [items, laid, current, complete, loading] = [[], 0, 0, false, null];
  [fetchMore, drawTile, extra, linesNow] = [fetchNext, draw, codes ? CODES : 0, lines];
  root.setAttribute("aria-busy", "true");
  root.replaceChildren(element("div", { className: "skeleton", "aria-hidden": "true" }, ...Array.from({ length: 24 }, () => element("span"))));
  return more();
}

/** Forget all items. */
export function clear() {
  [items, laid, complete] = [[], 0, true];
  root.removeAttribute("aria-busy");
  root.replaceChildren();
}

/** Fetch and lay out the next items, once at a time. */
export function more() {
  if (complete) return null;
  if (!loading) {
    const mine = next(fetchMore).finally(() => { if (loading === mine) loading = null; }); // else something else loads by now
    loading = mine;
  }
  return loading;
}

async function next(mine) {
  const part = await mine(items.length);
  if (mine !== fetchMore || !part) return; // something else has been asked meanwhile
  if (!items.length) root.replaceChildren();
  root.removeAttribute("aria-busy");
  items.push(...part.items);
  complete = part.complete;
  layOut();
  atEnd.unobserve(end); // seen again if it is still near
  atEnd.observe(end);
}

const aspect = ({ width: wide, height: high }) => (wide && high ? Math.min(2.6, Math.max(0.55, wide / high)) : 1.33);

/** Lay out the items that stand in no row; what does not fill a row waits for more. */
function layOut() {
  width = root.clientWidth;
  const most = width < 640 ? 150 : 230;
  const lines = linesNow();
  let rows = [];
  let start = laid, sum = 0;
  for (let i = laid; i < items.length; i++) {
    sum += aspect(items[i]);
    const height = (width - GAP * (i - start)) / sum;
    if (height > most && !(complete && i === items.length - 1) && !lines.has(i + 1)) continue;
    rows.push({ start, end: i + 1, height: Math.floor(Math.min(height, most)), full: height <= most });
    [start, sum] = [i + 1, 0];
    if (rows.length < ROWS && !lines.has(start)) continue;
    append(rows, lines);
    rows = [];
  }
  laid = start;
  if (rows.length) append(rows, lines);
}

function append(rows, lines) {
  const line = lines.get(rows[0].start);
  if (line) root.append(element("h2", { className: "line" }, line));
  const block = element("ol", { className: "block", start: rows[0].start + 1 });
  block.rows = rows;
  block.style.height = `${rows.reduce((sum, row) => sum + row.height + extra + GAP, 0)}px`;
  root.append(block);
  near.observe(block);
}

function fill(block) {
  if (block.firstChild) return;
  block.append(...block.rows.flatMap(({ start, end: stop, height, full }) => items.slice(start, stop).map((item, i) => {
    const tile = drawTile(item, start + i);
    tile.style.width = `${Math.floor(height * aspect(item))}px`;
    tile.style.height = `${height + extra}px`;
    tile.style.flexGrow = full ? 1 : 0; // what rounding left
    tile.firstChild.style.height = `${height}px`;
    tile.firstChild.tabIndex = start + i === current ? 0 : -1;
    tile.firstChild.dataset.place = start + i;
    return tile;
  })));
}

const blockOf = (place) => [...root.querySelectorAll(".block")].find((block) => place < block.rows.at(-1).end);

/** Lead the keyboard to an item. */
export function focusItem(place) {
  const block = blockOf(place);
  if (!block) return root.focus();
  fill(block);
  block.querySelector(`[data-place="${place}"]`).focus();
}

root.addEventListener("focusin", ({ target }) => {
  if (!target.dataset.place) return;
  for (const other of root.querySelectorAll('.show[tabindex="0"]')) other.tabIndex = -1;
  target.tabIndex = 0;
  current = Number(target.dataset.place);
});

/** Arrow keys walk over the photographs as they stand on the screen. */
root.addEventListener("keydown", (event) => {
  const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -1, ArrowDown: 1 }[event.key];
  if (!step || !event.target.dataset.place) return;
  event.preventDefault();
  let to = current + step;
  if (event.key === "ArrowUp" || event.key === "ArrowDown") {
    const rows = [...root.querySelectorAll(".block")].flatMap((block) => block.rows);
    const at = rows.findIndex((row) => current < row.end);
    if (!rows[at + step]) return;
    const share = (current - rows[at].start + 0.5) / (rows[at].end - rows[at].start);
    to = rows[at + step].start + Math.floor(share * (rows[at + step].end - rows[at + step].start));
  }
  if (items[to]) focusItem(to);
});

new ResizeObserver(() => {
  if (root.clientWidth === width || !items.length) return;
  const first = [...root.querySelectorAll(".show")].find((tile) => tile.getBoundingClientRect().bottom > 0);
  root.replaceChildren();
  laid = 0;
  layOut();
  if (first && window.scrollY) blockOf(Number(first.dataset.place))?.scrollIntoView();
}).observe(root);
