// Simple checks: all texts are in src/strings.ts, there is no inline style or script, and nothing that is built or
// checked in names another host.
import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import ts from "typescript";

const root = new URL("..", import.meta.url).pathname;
const problems = [];
const files = (folder) =>
  readdirSync(folder).flatMap((name) => {
    const path = join(folder, name);
    return statSync(path).isDirectory() ? files(path) : [path];
  });

const SPOKEN = new Set([
  "label",
  "title",
  "alt",
  "aria-label",
  "aria-valuetext",
  "verb",
  "text",
  "hint",
  "said",
]);
for (const path of files(join(root, "src")).filter((p) => p.endsWith(".tsx"))) {
  const source = ts.createSourceFile(
    path,
    readFileSync(path, "utf8"),
    ts.ScriptTarget.Latest,
    true,
    ts.ScriptKind.TSX,
  );
  const say = (node, what) => {
    const { line } = source.getLineAndCharacterOfPosition(node.getStart());
    problems.push(`${path.slice(root.length)}:${line + 1}: ${what}`);
  };
  const visit = (node) => {
    // Names that are the same in each language stay where they are.
    if (ts.isJsxText(node) && /[A-Za-z]{2}/.test(node.text) && !/^\s*(Cenote|ok)\s*$/.test(node.text))
      say(node, `text outside the table of strings: ${node.text.trim()}`);
    if (ts.isJsxAttribute(node) && node.initializer && ts.isStringLiteral(node.initializer)) {
      const name = node.name.getText();
      if (SPOKEN.has(name) && /[A-Za-z]{2}/.test(node.initializer.text))
        say(node, `text outside the table of strings: ${name}`);
      if (name === "style") say(node, "inline styles are forbidden: give an object");
      if (name === "dangerouslySetInnerHTML") say(node, "markup as text is forbidden");
    }
    ts.forEachChild(node, visit);
  };
  visit(source);
}

// Names of XML and placeholders are no requests.
const ALLOWED = /^(www\.w3\.org|(monitor|ntfy)\.example|localhost|127\.0\.0\.1)$/;
const REPORT = join(root, "dist/report.html");
for (const path of files(join(root, "dist"))) {
  const text = readFileSync(path, "utf8");
  for (const [, host] of text.matchAll(/https?:\/\/([A-Za-z0-9.-]+)/g))
    if (!ALLOWED.test(host)) problems.push(`${path.slice(root.length)} names the host ${host}`);
  // The page of reports has its script and style within it, and a policy with their hashes.
  if (path === REPORT) {
    if (text.length > 60 * 1024) problems.push(`dist/report.html has ${text.length} bytes`);
    if (/\ssrc=|<link/.test(text.slice(0, text.indexOf("<style>"))))
      problems.push("dist/report.html needs other files");
  } else if (path.endsWith(".html") && /<script(?![^>]*\ssrc=)|<style|\sstyle=|\son[a-z]+=/.test(text))
    problems.push(`${path.slice(root.length)} has an inline script or style`);
}
if (/"resolved"/.test(readFileSync(join(root, "package-lock.json"), "utf8")))
  problems.push("package-lock.json has addresses of downloads: see .npmrc");
const { gzipSync } = await import("node:zlib");
const first = files(join(root, "dist"))
  .filter((path) => path !== REPORT)
  .reduce((sum, path) => sum + gzipSync(readFileSync(path)).length, 0);
if (first > 200 * 1024) problems.push(`the first view has ${first} bytes, compressed`);

for (const problem of problems) console.error(problem);
if (!problems.length) console.log(`good; the first view has ${Math.round(first / 1024)} KiB, compressed`);
process.exit(problems.length ? 1 : 0);
