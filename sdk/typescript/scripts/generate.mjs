// Generates src/generated/api.ts from docs/openapi.json: the types of all schemas and routes, with names in camel case, and
// the table that converts names to the wire format and back.
//
//   node scripts/generate.mjs           writes the file
//   node scripts/generate.mjs --check   fails if the file is out of date
import { readFile, writeFile } from "node:fs/promises";
import openapiTS, { astToString } from "openapi-typescript";

const source = new URL("../../../docs/openapi.json", import.meta.url);
const target = new URL("../src/generated/api.ts", import.meta.url);

const camel = (name) => name.replace(/_([a-z0-9])/g, (_, letter) => letter.toUpperCase());

/** Maps names of the SDK to wire names, where they differ. */
const wireNames = new Map();
/** Properties whose value is user data: its keys are not renamed. */
const opaque = new Set();

function rename(name) {
  const ours = camel(name);
  const known = wireNames.get(ours) ?? (plainNames.has(ours) ? ours : undefined);
  if (known !== undefined && known !== name) {
    throw new Error(`\`${name}\` and \`${known}\` of the document would both become \`${ours}\``);
  }
  if (ours === name) plainNames.add(name);
  else wireNames.set(ours, name);
  return ours;
}
const plainNames = new Set();

/** Whether the keys of this value are data and not names of the API. */
function isOpen(schema) {
  if (typeof schema !== "object" || schema === null) return true;
  if (schema.additionalProperties) return true;
  const kinds = [schema.type].flat();
  if (Object.keys(schema).every((key) => key === "description" || key === "default")) return true;
  return kinds.includes("object") && !schema.properties;
}

/** Renames the properties of a schema recursively. */
function renamed(schema, schemas) {
  if (Array.isArray(schema)) return schema.map((part) => renamed(part, schemas));
  if (typeof schema !== "object" || schema === null) return schema;
  const result = {};
  for (const [key, value] of Object.entries(schema)) {
    if (key === "properties") {
      result.properties = {};
      for (const [name, property] of Object.entries(value)) {
        if (isOpen(property) || holdsOpen(property, schemas)) opaque.add(rename(name));
        result.properties[rename(name)] = renamed(property, schemas);
      }
    } else if (key === "required" && Array.isArray(value)) {
      result.required = value.map(rename);
    } else if (key === "example" || key === "examples" || key === "default" || key === "enum") {
      result[key] = value;
    } else {
      result[key] = renamed(value, schemas);
    }
  }
  return result;
}

/** Whether the property is a list of objects with additional keys, such as the messages of a conversation. */
function holdsOpen(property, schemas) {
  const ref = property.items?.$ref?.split("/").at(-1);
  const parts = ref ? (schemas[ref].allOf ?? []) : [];
  return parts.some((part) => part.type === "object" && !part.properties);
}

/** The TypeScript type of a schema in a route. Such schemas are references, lists or scalars. */
function written(schema) {
  if (schema.$ref) return `Schemas["${schema.$ref.split("/").at(-1)}"]`;
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  if (schema.oneOf) return schema.oneOf.map(written).join(" | ");
  const kinds = [schema.type].flat().filter((kind) => kind !== "null");
  switch (kinds[0]) {
    case "array":
      return schema.items.format === "int32" ? "Uint8Array" : `(${written(schema.items)})[]`;
    case "integer":
    case "number":
      return "number";
    case "boolean":
    case "string":
      return kinds[0];
    case "object":
      return "Record<string, unknown>";
    default:
      throw new Error(`unsupported schema in a route: ${JSON.stringify(schema)}`);
  }
}

/** The types of one route: query, body and response. Error responses all have the same body. */
function route(value) {
  const query = (value.parameters ?? [])
    .filter(({ in: place }) => place === "query")
    .map((one) => `${rename(one.name)}${one.required ? "" : "?"}: ${written(one.schema)}`);
  const json = (content) => content?.["application/json"]?.schema ?? content?.["application/x-ndjson"]?.schema;
  const body = json(value.requestBody?.content);
  const answers = Object.entries(value.responses)
    .filter(([status]) => status.startsWith("2"))
    .map(([, answer]) => json(answer.content))
    .map((schema) => (schema ? written(schema) : "undefined"));
  const optional = value.requestBody && !value.requestBody.required ? " | undefined" : "";
  return [
    `query: ${query.length > 0 ? `{ ${query.join("; ")} }` : "undefined"};`,
    `body: ${body ? written(body) + optional : "undefined"};`,
    `answer: ${[...new Set(answers)].join(" | ") || "undefined"};`,
  ];
}

function routes(paths) {
  const lines = [];
  for (const [path, methods] of Object.entries(paths)) {
    for (const [method, value] of Object.entries(methods)) {
      lines.push(`  "${method.toUpperCase()} ${path}": {`, ...route(value).map((line) => `    ${line}`), "  };");
    }
  }
  return lines.join("\n");
}

function document(openapi) {
  const schemas = openapi.components.schemas;
  const ours = Object.entries(schemas).map(([name, schema]) => [name, renamed(schema, schemas)]);
  return {
    openapi: openapi.openapi,
    info: openapi.info,
    paths: {},
    components: { schemas: Object.fromEntries(ours) },
  };
}

const openapi = JSON.parse(await readFile(source, "utf8"));
const table = routes(openapi.paths);
const types = astToString(await openapiTS(document(openapi), { emptyObjectsUnknown: true, defaultNonNullable: false }))
  .replace(/^export type (paths|webhooks|\$defs|operations) = .*;\n/gm, "")
  .replace(/^export interface components/m, "interface Components")
  .replaceAll('components["schemas"]', "Schemas")
  .replace(/^    (responses|parameters|requestBodies|headers|pathItems): never;\n/gm, "");
const sorted = (entries) => [...entries].sort(([a], [b]) => (a < b ? -1 : 1));
const names = sorted(wireNames).map(([ours, wire]) => `  ${ours}: "${wire}",`);
const open = sorted([...opaque].map((name) => [name])).map(([name]) => `  "${name}",`);
const file = `// Made from docs/openapi.json by scripts/generate.mjs: \`npm run generate\`. Not to be edited.

/** Names of the wire, by ours, where they differ. */
export const wireNames: Readonly<Record<string, string>> = {
${names.join("\n")}
};

/** Properties whose keys are data and keep their names. */
export const opaqueNames: ReadonlySet<string> = new Set([
${open.join("\n")}
]);

/** Every route: what it takes in its query and body, and what it answers. */
export interface Routes {
${table}
}

export type Schemas = Components["schemas"];

${types}`;

if (process.argv.includes("--check")) {
  if ((await readFile(target, "utf8").catch(() => "")) !== file) {
    console.error("src/generated/api.ts does not match docs/openapi.json\nhint: run `npm run generate` in sdk/typescript");
    process.exit(1);
  }
} else {
  await writeFile(target, file);
}
