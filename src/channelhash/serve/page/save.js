// The answers as a file.

import { fetchPart } from "./asked.js";
import { element } from "./draw.js";
import { items } from "./grid.js";
import { asked, fail, info } from "./script.js";

/** Save the answers: as many as the server gives at one time. */
export async function takeAway(kind) {
  const { items: all } = await fetchPart(asked, 0, info.limits.k).catch((error) => { fail(error); return { items }; });
  const cell = (value) => `"${String(value ?? "").replaceAll('"', '""').replace(/^[=+@-]/, "'$&")}"`; // no formula in a spreadsheet
  const rows = all.map((item) => [item.id, item.distance, item.text, item.labels.join(";"), item.date].map(cell).join(","));
  const content = kind === "json" ? JSON.stringify(all, null, 1) : ["id,distance,text,labels,date", ...rows].join("\r\n");
  const url = URL.createObjectURL(new Blob([content], { type: kind === "json" ? "application/json" : "text/csv" }));
  element("a", { href: url, download: `answers.${kind}` }).click();
  URL.revokeObjectURL(url);
}
