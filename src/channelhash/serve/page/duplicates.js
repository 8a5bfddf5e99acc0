// Groups of near-duplicates, a row each: which one to keep, and what becomes of the rest.

import { addressOf, bitsWord, button, count, element, picture } from "./draw.js";
import { fetched } from "./requests.js";

let latest = 0; // number of the last question: answers to others are not shown
const [form, radius, status, error, groups, undo, said, hint] = ["form", "radius", "status", "error", "groups", "undo", "said", "hint"].map((id) => document.getElementById(id));
const files = (number) => (number === 1 ? "1 file" : `${count(number)} files`);
let writable = false;

/** Send what was decided; what went wrong is shown, and nothing is returned. */
async function send(what, body = undefined) {
  error.hidden = true;
  try {
    const headers = body ? { "Content-Type": "application/json" } : {};
    return await fetched(`duplicates/${what}`, { method: "POST", headers, body: body && JSON.stringify(body) });
  } catch (problem) {
    [error.textContent, error.hidden] = [problem.message, false];
    return null;
  }
}

const bytes = (number) => (number >= 1e6 ? `${(number / 1e6).toFixed(1)} MB` : `${Math.round(number / 1e3)} kB`);

const facts = ({ width, height, date, bytes: size }) => [width ? `${width} × ${height}` : "", date.slice(0, 10), size ? bytes(size) : ""].filter(Boolean).join(" · ");

function card(id, photo, distance, choose) {
  const shown = picture({ id, text: "", image: addressOf(id, 256).split("?")[0] }, 256);
  const pick = button(shown, () => choose(id), { className: "pick", "aria-label": `Keep ${id}`, disabled: !writable });
  return element("figure", { title: bitsWord(distance) }, pick, element("figcaption", {}, element("b", {}), id, element("br"), facts(photo)));
}

function row(found, place) {
  const ids = found.groups[place];
  let keeper = found.keepers[place];
  const line = element("p", { className: "status" });
  const ways = element("div", { className: "ways" });
  const cards = ids.map((id, at) => card(id, found.photos[place][at], found.distances[place][at], choose));
  const item = element("li", {}, line, element("div", { className: "cards", tabIndex: 0, role: "group", "aria-label": `${found.sizes[place]} items` }, ...cards), ways);

  function choose(id) {
    keeper = id;
    cards.forEach((figure, at) => {
      const isKept = ids[at] === id;
      figure.querySelector("button")?.setAttribute("aria-pressed", isKept);
      figure.querySelector("b").textContent = isKept ? "To keep: " : "";
    });
    const more = found.sizes[place] > ids.length ? `, the first ${ids.length} of them` : "";
    line.textContent = `${found.sizes[place]} items${more}; to keep: ${id === found.keepers[place] ? found.reasons[place] : "your choice"}`;
    offer();
  }

  function close(words) {
    [said.textContent, undo.hidden] = [words, false];
    item.remove();
  }

  async function decide(kind, words) {
    if (await send("decisions", { kind, ids })) close(words);
  }

  async function move(dryRun) {
    const answer = await send("move", { keeper, ids: ids.filter((id) => id !== keeper), dry_run: dryRun });
    if (!answer) return;
    const problems = answer.problems.map((problem) => element("p", { className: "status" }, problem));
    const number = answer.ids.length;
    if (!dryRun) close([`Moved ${files(number)} to “${answer.folder}”.`, ...answer.problems].join(" "));
    else if (number) ways.replaceChildren(...problems, `${files(number)} would go to “${answer.folder}”. `, button(`Move ${files(number)}`, () => move(false), { className: "primary" }), button("Cancel", offer));
    else ways.replaceChildren(...problems, button("Cancel", offer));
  }

  function offer() {
    if (!writable) return;
    ways.replaceChildren(
      button("Move the rest…", () => move(true)),
      button("Keep all", () => decide("keep", "All of them stay, and are not asked about again.")),
      button("Not duplicates", () => decide("different", "They are not put together again.")),
    );
  }

  choose(keeper);
  return item;
}

async function find() {
  const number = ++latest;
  error.hidden = true;
  status.textContent = "Looking for near-duplicates …";
  groups.replaceChildren();
  try {
    ({ writable } = await fetched("info"));
    const found = await fetched(radius.value ? `duplicates?radius=${encodeURIComponent(radius.value)}` : "duplicates");
    if (number !== latest) return;
    const first = found.found > found.groups.length ? `, the first ${found.groups.length} of them` : "";
    const within = found.radius === null ? "" : ` within ${bitsWord(found.radius)}`;
    status.textContent = found.found ? `${found.found} groups${within}${first}` : "No two items are near-duplicates.";
    hint.hidden = writable || !found.found;
    groups.replaceChildren(...found.groups.map((_, place) => row(found, place)));
  } catch (problem) {
    [status.textContent, error.textContent, error.hidden] = ["", problem.message, false];
  }
}

undo.addEventListener("click", async () => {
  const answer = await send("undo");
  if (!answer) return;
  undo.hidden = true;
  said.textContent = [answer.kind === "move" ? `Moved ${files(answer.ids.length)} back.` : "Taken back.", ...answer.problems].join(" ");
  find();
});
form.addEventListener("submit", (event) => { event.preventDefault(); find(); });
find();
