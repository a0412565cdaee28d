// Makes src/api/schema.ts (types of all requests and replies) and src/api/roles.ts (who may ask for what) from
// docs/src/openapi.json, or another document that is given. Both are checked in.
import { readFile, writeFile } from "node:fs/promises";
import openapiTS, { astToString } from "openapi-typescript";

const here = new URL("..", import.meta.url);
const document = JSON.parse(
  await readFile(process.argv[2] ?? new URL("../docs/src/openapi.json", here), "utf8"),
);

const roles = {};
const said = {};
for (const [path, methods] of Object.entries(document.paths)) {
  const name = path.replace(/^\/v1\//, "");
  if (methods.post && methods.post["x-cenote-role"]) {
    roles[name] = methods.post["x-cenote-role"];
    said[name] = methods.post.summary;
  }
}

// Guids do not fit into the numbers of JavaScript: the page reads long numbers as strings.
function guidsAreText(node) {
  if (Array.isArray(node)) return node.forEach(guidsAreText);
  if (node === null || typeof node !== "object") return;
  for (const [key, value] of Object.entries(node.properties ?? {})) {
    if (/(^|_)guid$/.test(key) && value.type === "integer") {
      value.type = "string";
      delete value.format;
      delete value.minimum;
    }
  }
  Object.values(node).forEach(guidsAreText);
}
guidsAreText(document);
// It contains itself, which the types cannot say.
if (document.components.schemas.EventValue) document.components.schemas.EventValue = {};
// Documented in api.md; here they would only make the file longer.
function withoutProse(node) {
  if (Array.isArray(node)) return node.forEach(withoutProse);
  if (node === null || typeof node !== "object") return;
  for (const key of ["description", "summary", "examples"])
    if (typeof node[key] === "string") delete node[key];
  Object.values(node).forEach(withoutProse);
}
withoutProse(document);

const head = "// Made from docs/src/openapi.json by `npm run generate`. Do not edit.\n";
const ast = await openapiTS(document, { alphabetize: false });
await writeFile(new URL("src/api/schema.ts", here), head + astToString(ast));
const lines = Object.entries(roles).map(([name, role]) => `  "${name}": "${role}",`);
await writeFile(
  new URL("src/api/roles.ts", here),
  `${head}export type Role = "viewer" | "operator" | "admin";\n\nexport const ROLES: Record<string, Role> = {\n${lines.join("\n")}\n};\n`,
);
