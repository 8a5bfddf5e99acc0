// Groups of near-duplicates, a row each: which one to keep, and what becomes of the rest.

import { addressOf, bitsWord, button, count, element, picture } from "./draw.js";
import { fetched } from "./requests.js";

let latest = 0; // number of the last question: answers to others are not shown
const [form, radius, status, error, groups, undo, said, hint] = ["form", "radius", "status", "error", "groups", "undo", "said", "hint"].map((id) => document.getElementById(id));
const files = (number) => (number === 1 ? "1 file" : `${count(number)} files`);
let decides = false; // whether this page may decide
let left = { groups: 0, bytes: 0 }; // what is not decided yet

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
  const pick = button(shown, () => choose(id), { className: "pick", "aria-label": `Keep ${id}`, disabled: !decides });
  return element("figure", { title: bitsWord(distance) }, pick, element("figcaption", {}, element("b", {}), id, element("br"), facts(photo)));
}

function row(found, place) {
  const ids = found.groups[place];
  const photos = found.photos[place];
  const unsure = new Set(found.unsure[place]); // nothing tells them from the original: a person does
  let keeper = found.keepers[place];
  const line = element("p", { className: "status" });
  const ways = element("div", { className: "ways" });
  const cards = ids.map((id, at) => card(id, photos[at], found.distances[place][at], pick));
  const item = element("li", {}, line, element("div", { className: "cards", tabIndex: 0, role: "group", "aria-label": `${found.sizes[place]} items` }, ...cards), ways);

  const rest = () => ids.filter((id) => id !== keeper && !unsure.has(id));
  const freed = () => photos.reduce((sum, photo, at) => sum + (ids[at] === keeper ? 0 : photo.bytes), 0);

  function pick(id) {
    unsure.clear();
    choose(id);
  }

  function choose(id) {
    keeper = id;
    const isKnown = rest().length > 0;
    cards.forEach((figure, at) => {
      const isKept = ids[at] === id && isKnown;
      figure.querySelector("button")?.setAttribute("aria-pressed", isKept);
      const otherwise = unsure.has(ids[at]) || !isKnown ? "Unsure: " : "";
      figure.querySelector("b").textContent = isKept ? "To keep: " : otherwise;
    });
    const more = found.sizes[place] > ids.length ? `, the first ${ids.length} of them` : "";
    const reason = id === found.keepers[place] ? found.reasons[place] : "your choice";
    const question = unsure.size ? ` · ${count(unsure.size)} unsure` : "";
    const proposal = isKnown ? `to keep: ${reason}${question}` : "unsure which is the original: choose the one to keep";
    line.textContent = `${found.sizes[place]} items${more} · frees ${bytes(freed())} · ${proposal}`;
    offer();
  }

  function close(words) {
    [said.textContent, undo.hidden] = [words, false];
    left = { groups: left.groups - 1, bytes: left.bytes - freed() };
    tell(found);
    item.remove();
  }

  async function decide(kind, words) {
    if (await send("decisions", { kind, ids })) close(words);
  }

  async function move(dryRun) {
    const answer = await send("move", { keeper, ids: rest(), dry_run: dryRun });
    if (!answer) return;
    const problems = answer.problems.map((problem) => element("p", { className: "status" }, problem));
    const number = answer.ids.length;
    if (!dryRun) close([`Moved ${files(number)} to “${answer.folder}”.`, ...answer.problems].join(" "));
    else if (number) ways.replaceChildren(...problems, `${files(number)} would go to “${answer.folder}”. `, button(`Move ${files(number)}`, () => move(false), { className: "primary" }), button("Cancel", offer));
    else ways.replaceChildren(...problems, button("Cancel", offer));
  }

  function offer() {
    if (!decides) return;
    ways.replaceChildren(
      ...(rest().length ? [button("Move the rest…", () => move(true))] : []),
      button("Keep all", () => decide("keep", "All of them stay, and are not asked about again.")),
      button("Not duplicates", () => decide("different", "They are not put together again.")),
    );
  }

  choose(keeper);
  return item;
}

/** Say how many groups are left, and what they free. */
function tell(found) {
  const first = found.found > found.groups.length ? `, the first ${found.groups.length} of them` : "";
  const within = found.radius === null ? "" : ` within ${bitsWord(found.radius)}`;
  const groups = left.groups === 1 ? "1 group" : `${count(left.groups)} groups`;
  status.textContent = left.groups ? `${groups}${within}${first} · frees up to ${bytes(left.bytes)}` : "No two items are near-duplicates.";
}

async function find() {
  const number = ++latest;
  error.hidden = true;
  status.textContent = "Looking for near-duplicates …";
  groups.replaceChildren();
  try {
    ({ decides } = await fetched("info"));
    const found = await fetched(radius.value ? `duplicates?radius=${encodeURIComponent(radius.value)}` : "duplicates");
    if (number !== latest) return;
    left = { groups: found.found, bytes: found.bytes };
    tell(found);
    hint.hidden = decides || !found.found;
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
