// Opens the page of a report (dist/report.html, or the one that is given) in Chromium as a file, with a document
// that has all kinds of blocks and hostile texts: they stay texts, nothing else is asked for, and axe-core finds
// nothing. Without --page it puts its own document in, as the lab does.
//
//   node tests/report.mjs [--dist DIR] [--page FILE] [--pictures DIR]
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const here = new URL("..", import.meta.url).pathname;
const option = (name, otherwise) => {
  const at = process.argv.indexOf(`--${name}`);
  return at < 0 ? otherwise : process.argv[at + 1];
};
const dist = option("dist", join(here, "dist"));
const pictures = option("pictures", "");
const given = option("page", "");
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

export const HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u2028\"'&amp;<!--";
const course = (label, from, band) => {
  const points = Array.from({ length: 30 }, (_, i) => [i * 2, from + 900 * Math.sin(i / 3) + i * 20]);
  return { label, points, band: band ? points.map(([, y]) => [y - 600, y + 700]) : [] };
};
const names = ["volblocksize=16K", "volblocksize=64K", "compression=zstd volblocksize=64K", HOSTILE];
export const sample = {
  generator: "cenote lab",
  version: 1,
  title: `Which volblocksize is best? ${HOSTILE}`,
  question: "Which block size of volumes gives most `IOPS` to random reads of 16 KiB?",
  notes: ["Disks are modelled: figures are those of `hdd-7200`.", HOSTILE],
  answer: {
    sentences: [
      "`volblocksize=64K` is best: 34% more IOPS than the baseline (28% to 41%).",
      "It takes 4% more space.",
      "An odd ` stays.",
    ],
    is_answered: true,
  },
  blocks: [
    { kind: "heading", level: 2, text: "random reads", small: HOSTILE },
    { kind: "prose", text: "Six rounds of `fio` each.", strong: true },
    { kind: "list", items: ["one", "two `code`", HOSTILE], ordered: true },
    {
      kind: "table",
      rows: [
        ["Variant", "Verdict", "IOPS", "p99"],
        ["volblocksize=16K", "baseline", "12.3k", "3.20 ms"],
        ["volblocksize=64K", "better", "16.4k", "2.10 ms"],
        [HOSTILE, HOSTILE, "9.1k", "9.90 ms"],
      ],
      words: [true, true, false, false],
      shades: [
        [0, 0, 0],
        [0, 0.29, 0.42],
        [0, -0.3, -1.1],
      ],
    },
    {
      kind: "bars",
      unit: "per_second",
      bars: [
        { label: names[0], text: "12.3k", value: 12300, low: 11900, high: 12600, class: "baseline" },
        { label: names[1], text: "16.4k", value: 16400, low: 16100, high: 16900, class: "better" },
        { label: names[2], text: "11.0k", value: 11000, low: 9000, high: 60000, class: "worse" },
        { label: names[3], text: HOSTILE.slice(0, 9), value: 12400, low: 11000, high: 13000, class: "same" },
        { label: "device", text: "18.0k", value: 18000, low: 18000, high: 18000, class: "limit" },
      ],
      lines: [
        { label: `link: ${HOSTILE}`, value: 19000 },
        { label: "memory", value: 9e6 },
      ],
    },
    { kind: "heading", level: 3, text: "Latencies", small: "on a logarithmic axis" },
    {
      kind: "percentiles",
      unit: "seconds",
      rows: names.map((label, i) => ({
        label,
        text: "0.40 / 2.10 / 8.80 ms",
        values: [4e-4 * (i + 1), 2.1e-3 * (i + 1), 8.8e-3 * (i + 1)],
      })),
    },
    {
      kind: "courses",
      unit: "per_second",
      title: "IOPS",
      across: "since the first run began",
      courses: names.map((label, i) => course(label, 9000 + i * 2500, i < 2)),
    },
    {
      kind: "dots",
      x: { title: `Space (less is better) ${HOSTILE}`, unit: "ratio" },
      y: { title: "IOPS (more is better)", unit: "per_second" },
      dots: names.map((label, i) => ({ label, x: 1 + i / 9, y: 9000 + 2500 * i, marked: i === 1 })),
    },
    { kind: "courses", unit: "bytes", title: "Memory", across: "", courses: [] },
    { kind: "percentiles", unit: "seconds", rows: [] },
    { kind: "bars", unit: "bytes", bars: [], lines: [] },
    { kind: "a kind of tomorrow", text: "is left out" },
  ],
  facts: ["Kernel `6.1`, 2 processors.", HOSTILE],
};

/** As the lab puts a document into the page. */
export function filled(page, document) {
  const json = JSON.stringify(document)
    .replaceAll("<", "\\u003c")
    .replaceAll("\u2028", "\\u2028")
    .replaceAll("\u2029", "\\u2029");
  const place = '<script type="application/json" id="document">null</script>';
  if (page.split(place).length !== 2) throw new Error("the page has no place for a document, or several");
  return page.replace(place, () => place.replace("null", () => json));
}

async function main() {
  const folder = mkdtempSync(join(tmpdir(), "report-"));
  const path = given ? resolve(given) : join(folder, "report.html");
  if (!given) writeFileSync(path, filled(readFileSync(join(dist, "report.html"), "utf8"), sample));
  if (pictures) mkdirSync(pictures, { recursive: true });
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: [
      "--headless",
      "--no-sandbox",
      "--disable-gpu",
      "--no-first-run",
      "--disable-background-networking",
    ],
  });
  const problems = [];
  try {
    for (const colorScheme of ["light", "dark"])
      for (const width of [360, 800, 1400]) {
        const context = await browser.newContext({ viewport: { width, height: 900 }, colorScheme });
        const page = await context.newPage();
        page.on("pageerror", (e) => problems.push(`error in the page: ${e.message}`));
        page.on("dialog", (d) => (problems.push(`a dialog of a script: ${d.message()}`), void d.dismiss()));
        page.on("console", (c) => c.type() === "error" && problems.push(`console: ${c.text()}`));
        page.on("request", (r) => {
          if (r.url() !== pathToFileURL(path).href) problems.push(`asked for ${r.url()}`);
        });
        await page.goto(pathToFileURL(path).href);
        await page.locator(".report h1").waitFor();
        if (!given) {
          const title = await page.locator(".report h1").textContent();
          if (!title.includes(HOSTILE)) problems.push(`the title became ${title}`);
          if (await page.locator(".report img, .report script").count())
            problems.push("a text became markup");
          if ((await page.locator(".report code").count()) < 5) problems.push("code is not shown");
        }
        const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        if (wide > 1) problems.push(`at ${width} px it is ${wide} px too wide`);
        await page.evaluate(axe).catch(async () => {
          // The policy of the page does not hold for scripts of the debugger, but may for eval.
          await page.addScriptTag({ content: axe });
        });
        const found = await page.evaluate(async () =>
          (await window.axe.run(document, { resultTypes: ["violations"] })).violations.map(
            (v) =>
              `${v.id} (${v.impact}): ${v.nodes
                .slice(0, 3)
                .map((n) => `${n.target} ${n.any?.[0]?.message ?? ""}`)
                .join(", ")}`,
          ),
        );
        problems.push(...found.map((f) => `axe, ${colorScheme}, ${width}: ${f}`));
        if (pictures)
          await page.screenshot({
            path: join(pictures, `report-${width}-${colorScheme}.png`),
            fullPage: true,
          });
        if (pictures && width === 800 && colorScheme === "dark")
          await page.pdf({ path: join(pictures, "report.pdf"), format: "A4" });
        await context.close();
      }
  } finally {
    await browser.close();
    rmSync(folder, { recursive: true, force: true });
  }
  for (const problem of new Set(problems)) console.error(problem);
  if (!problems.length) console.log("the page of reports is well");
  return problems.length ? 1 : 0;
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) process.exit(await main());
