// The description of the API (openapi.json) as a page to read.

import { element } from "./draw.js";

/** What a schema refers to. */
const resolved = (schema, api) => (schema?.$ref ? api.components.schemas[schema.$ref.split("/").pop()] : schema ?? {});

/** A type in a few words, such as "integer ≥ 1" or "image | text | null". */
function typeOf(schema, api) {
  const target = resolved(schema, api);
  if (target.anyOf) return target.anyOf.map((one) => typeOf(one, api)).join(" | ");
  if (target.enum) return target.enum.map((value) => JSON.stringify(value)).join(" | ");
  if (target.type === "array") return `[${typeOf(target.items, api)}]`;
  if (target.type === "object" && target.additionalProperties) return `{name: ${typeOf(target.additionalProperties, api)}}`;
  const bound = target.minimum !== undefined ? ` ≥ ${target.minimum}` : "";
  if (target.contentMediaType || target.format === "binary") return "file";
  return `${schema?.$ref && target.type === "object" ? target.title : target.type ?? "any"}${bound}`;
}

function table(rows, api) {
  const body = rows.map(({ name, schema, required, description }) => element(
    "tr", {}, element("th", { scope: "row" }, name, required ? element("small", {}, " needed") : ""),
    element("td", {}, element("code", {}, typeOf(schema, api))), element("td", {}, description ?? resolved(schema, api).description ?? ""),
  ));
  return element("table", {}, element("tbody", {}, ...body));
}

const propertyRows = (schema) => Object.entries(schema.properties ?? {}).map(([name, property]) => (
  { name, schema: property, required: schema.required?.includes(name), description: property.description }
));

function route(method, path, operation, api) {
  const parts = [
    element("h2", {}, element("span", { className: "chip" }, method.toUpperCase()), ` ${path} `),
    element("p", {}, operation.description ?? operation.summary ?? "", operation.security ? " Needs the token." : ""),
  ];
  if (operation.parameters?.length) parts.push(table(operation.parameters, api));
  for (const [type, { schema }] of Object.entries(operation.requestBody?.content ?? {})) {
    parts.push(element("h3", {}, `Body, ${type}`), table(propertyRows(resolved(schema, api)), api));
    for (const example of resolved(schema, api).examples ?? []) parts.push(element("pre", { tabIndex: 0 }, JSON.stringify(example)));
  }
  for (const [status, answer] of Object.entries(operation.responses)) {
    const schema = answer.content?.["application/json"]?.schema;
    const rows = propertyRows(resolved(schema, api)).map((row) => ({ ...row, required: false })); // of an answer, all are there
    if (status.startsWith("2") && rows.length) parts.push(element("h3", {}, `Answer ${status}`), table(rows, api));
  }
  const refusals = Object.keys(operation.responses).filter((status) => !status.startsWith("2"));
  if (refusals.length) parts.push(element("p", { className: "hint" }, `Refusals: ${refusals.join(", ")}, as {"error": "one line"}.`));
  return element("section", {}, ...parts);
}

const api = await (await fetch("openapi.json")).json();
const routes = Object.entries(api.paths).flatMap(([path, operations]) => (
  Object.entries(operations).map(([method, operation]) => route(method, path, operation, api))
));
document.getElementById("api").append(element("p", {}, api.info.description), ...routes);
