// What is asked: it stands in the address, goes to the server, and is shown as chips that can be taken away.

import { fetched } from "./requests.js";

const NOTHING = { q: "", id: null, code: null, by: null, in: null, r: null, labels: [], folder: null, month: null, where: "", order: null, seed: null, codes: null, all: null };

/** Orders of answers, beside the best first. */
export const DATED = ["newest", "oldest"];

/** What is asked, from an address. */
export function readState(search) {
  const given = new URLSearchParams(search);
  const state = { ...NOTHING, labels: given.getAll("label") };
  for (const name of Object.keys(NOTHING)) if (given.has(name)) state[name] = given.get(name);
  if (state.r !== null) state.r = Number(state.r);
  return state;
}

export function writeState(state) {
  const parts = new URLSearchParams();
  for (const name of Object.keys(NOTHING)) {
    if (name !== "labels" && state[name] !== null && state[name] !== "") parts.set(name, state[name]);
  }
  for (const label of state.labels) parts.append("label", label);
  return parts.size ? `?${parts}` : location.pathname;
}

/** The state without its question; what narrows stays. */
export const unasked = (state) => ({ ...state, q: "", id: null, code: null, by: null, r: null, order: null, all: null });

export const hasQuestion = (state) => Boolean(state.q.trim() || state.id !== null || state.code);

/** A part of the answers to a state, or of all items in an order where nothing is asked: {items, total, …}. */
export async function fetchPart(state, offset, limit, signal) {
  const narrow = { where: state.where || null, folder: state.folder, month: state.month };
  if (!hasQuestion(state)) {
    const parts = new URLSearchParams({ order: state.order ?? "newest", seed: state.seed ?? 0, offset, limit });
    for (const [name, value] of Object.entries(narrow)) if (value) parts.set(name, value);
    for (const label of state.labels) parts.append("label", label);
    return fetched(`items?${parts}`, { signal });
  }
  const alone = state.id !== null && (state.by ?? "image") === (state.in ?? "image"); // like itself, which nobody needs to see
  const body = {
    ...narrow, label: state.labels, text: state.q.trim() || null, id: state.id, query_modality: state.by, code: state.code,
    modality: state.in, radius: state.r, k: limit, offset, exclude_self: alone,
    fitting: !state.all, order: DATED.includes(state.order) ? state.order : null,
  };
  const answer = await fetched("search", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal });
  return { ...answer, items: answer.results };
}

/** Bits within which pictures may be near-duplicates. */
export const alikeWithin = (info) => Math.min(info.n_bits, Math.max(3, (3 * info.n_bits) >> 4));

/** Parts of a question as it is typed; what stands in quotes in the former one stays in quotes. */
const typed = (parts, former) => parts.map((part) => said(part, former.replace(/[“”]/g, '"'))).join(" ");

function said({ kind, value, weight }, former) {
  const apart = /\s/.test(value) && (kind === "without" || Math.abs(weight) !== 1);
  const quoted = apart || (kind === "words" && former.includes(`"${value}"`)) ? `"${value}"` : value;
  return `${kind === "without" ? "-" : ""}${quoted}${Math.abs(weight) === 1 ? "" : `^${Math.abs(weight)}`}`;
}

/** The words of a question that pictures are compared with: without dates and places. */
export const shownWords = (state, understood) => typed(understood.filter(({ kind }) => kind === "words" || kind === "without"), state.q);

/** What was understood, as chips: [words, the state without it, the id or code whose picture stands beside it, what it means]. */
export function chipsOf(state, understood, name) {
  const words = understood.filter(({ kind }) => ["words", "without", "date", "place"].includes(kind));
  const isPlain = words.length === 1 && !words[0].means && words[0].kind === "words"; // then the box says the same
  const chips = (isPlain ? [] : words).map((part) => [
    part.kind === "without" ? `not ${part.value}` : meaningOf(part), { ...state, q: typed(words.filter((other) => other !== part), state.q) }, null, part.value,
  ]);
  if (state.id !== null) chips.push([`${(state.by ?? "image") === (state.in ?? "image") ? "like" : "for"} ${name ?? state.id}`, { ...state, id: null, by: null }, state.id]);
  if (state.code) chips.push(["your picture", { ...state, code: null }, state.code]);
  if (state.r !== null) chips.push([state.id === null ? `within ${state.r} bits` : "only near-copies", { ...state, r: null }, null, `within ${state.r} bits`]);
  if (state.all) chips.push(["also what is less likely", { ...state, all: null }]);
  for (const label of state.labels) chips.push([label, { ...state, labels: state.labels.filter((other) => other !== label) }]);
  if (state.folder) chips.push([`Folder: ${state.folder}`, { ...state, folder: null }]);
  if (state.month) chips.push([monthName(state.month), { ...state, month: null }]);
  const clauses = clausesOf(state.where);
  for (const clause of clauses) {
    const [, key, value] = clause.match(CLAUSE) ?? [];
    chips.push([key ? `${capital(key)}: ${value.replaceAll("''", "'")}` : clause, { ...state, where: clauses.filter((other) => other !== clause).join(" AND ") }]);
  }
  return chips;
}

const CLAUSE = /^(\w+) = '((?:[^']|'')*)'$/; // of a filter: a key of metadata is a value

/** The parts of a filter that can be taken away one by one: such clauses, or the whole. */
function clausesOf(where) {
  const parts = where.split(/ AND (?=\w+ = ')/);
  return parts.every((part) => CLAUSE.test(part)) ? parts : [where].filter(Boolean);
}

const capital = (words) => words[0].toUpperCase() + words.slice(1);

/** Words of a question with the date or place that they were understood as: "Summer 2019: 1 June – 31 August", "Rome". */
function meaningOf({ value, means }) {
  if (!means) return value;
  const plain = value.toLowerCase().replace(/^in /, "");
  return means.toLowerCase() === plain ? capital(means) : `${capital(value)}: ${inDays(means, value)}`;
}

/** "1 June – 31 August" of "June 2019 to August 2019", with the year unless the words hold it. */
function inDays(means, words) {
  const [, from, first, to, last] = means.match(/^([A-Z]\w+) (\d{4}) to ([A-Z]\w+) (\d{4})$/) ?? [];
  if (!from) return means;
  const month = new Date(`${to} 1, ${last}`).getMonth();
  const end = `${new Date(last, month + 1, 0).getDate()} ${to}`;
  if (first !== last) return `1 ${from} ${first} – ${end} ${last}`;
  return `1 ${from} – ${end}${words.includes(last) ? "" : ` ${last}`}`;
}

/** A filter with the condition that a key of metadata is a value, in place of one that it was another. */
export function narrowed(where, key, value) {
  const clause = `${key} = '${value.replaceAll("'", "''")}'`, former = new RegExp(`\\b${key} = '(?:[^']|'')*'`);
  if (former.test(where)) return where.replace(former, () => clause);
  return where ? `${/\bOR\b/i.test(where) ? `(${where})` : where} AND ${clause}` : clause;
}

/** "July 2019" of "2019-07"; a year or a day stays as it is. */
export function monthName(month) {
  if (!/^\d{4}-\d\d$/.test(month)) return month;
  return new Date(`${month}-15T12:00`).toLocaleString("en", { month: "long", year: "numeric" });
}
