// Drives the page in a browser against a real daemon. See scripts/try-dashboard.
import { spawn, spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { request } from "node:http";
import { createRequire } from "node:module";
import { createServer } from "node:net";
import { join } from "node:path";
import { chromium } from "playwright-core";

const here = new URL("..", import.meta.url).pathname;
const given = (name) => process.argv.includes(`--${name}`);
const option = (name, otherwise) => {
  const at = process.argv.indexOf(`--${name}`);
  return at < 0 ? otherwise : process.argv[at + 1];
};
const cenote = option("cenote", process.env.CENOTE ?? join(here, "../target/debug/cenote"));
const dev = given("dev");
const few = given("few");
const only = option("only", "");
const dist = option("dist", "");
const pictures = option("pictures", "");
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

const folder = mkdtempSync(join(process.env.TRY_DIR ?? "/var/tmp", "try-dashboard-"));
const slow = join(folder, "modelled", "hdd-7200");
mkdirSync(slow, { recursive: true });
const socket = join(folder, "api.sock");
const environment = { ...process.env, CENOTE_SOCKET: socket };
const freePort = () =>
  new Promise((done) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => done(port));
    });
  });
const port = await freePort();
const ports = { nbd: await freePort(), iscsi: await freePort(), nfs: await freePort() };
const origin = `http://127.0.0.1:${port}`;

// The daemon

let daemon;
let front;
async function startDaemon() {
  const log = openSync(join(folder, "daemon.log"), "a");
  const args = [
    "serve",
    "--cachefile",
    join(folder, "zpool.cache"),
    "--audit",
    join(folder, "audit.log"),
    "--arc-max",
    "256M",
    "--modelled",
    join(folder, "modelled"),
    "--nbd-tcp",
    `127.0.0.1:${ports.nbd}`,
    "--iscsi",
    `127.0.0.1:${ports.iscsi}`,
    "--nfs",
    `127.0.0.1:${ports.nfs}`,
    "--vhost-user",
    join(folder, "vhost"),
  ];
  if (!dev) args.push("--dashboard", `127.0.0.1:${port}`);
  daemon = spawn(cenote, args, { env: environment, stdio: ["ignore", log, log] });
  await until("the daemon answers", async () => (await api("hello")).version);
}
async function stopDaemon(signal) {
  const ended = new Promise((done) => daemon.once("exit", done));
  daemon.kill(signal);
  await ended;
}
function run(...words) {
  const done = spawnSync(cenote, words, { env: environment, encoding: "utf8" });
  if (done.status !== 0) throw new Error(`cenote ${words.join(" ")}: ${done.stderr}`);
  return done.stdout;
}
const api = async (action, body = {}) => JSON.parse(await raw(action, body));
function raw(action, body) {
  return new Promise((done, fail) => {
    const asked = request(
      { socketPath: socket, path: `/v1/${action}`, method: "POST", headers: { host: "localhost" } },
      (r) => {
        let text = "";
        r.on("data", (d) => (text += d));
        r.on("end", () => (r.statusCode === 200 ? done(text) : fail(new Error(`${action}: ${text}`))));
      },
    );
    asked.on("error", fail);
    asked.end(JSON.stringify(body));
  });
}
async function until(what, test, limit = 30_000) {
  const end = Date.now() + limit;
  let last;
  for (;;) {
    try {
      const found = await test();
      if (found) return found;
    } catch (error) {
      last = error;
    }
    if (Date.now() > end) throw new Error(`waited too long until ${what}${last ? ` (${last.message})` : ""}`);
    await new Promise((go) => setTimeout(go, 100));
  }
}
async function signInLink() {
  if (dev) return (await (await fetch(`${origin}/dev/link`, { method: "POST" })).json()).url;
  return /https?:\/\/\S+#sign-in=\S+/.exec(run("dashboard"))[0];
}
const file = (name, mib = 128, where = folder) => {
  const path = join(where, name);
  writeFileSync(path, "");
  truncateSync(path, mib * 2 ** 20);
  return path;
};

// Steps

const failures = [];
let page;
const problems = [];
async function step(name, work) {
  if (only && !name.includes(only)) return;
  const began = Date.now();
  const before = problems.length;
  try {
    await work();
    const seen = problems.slice(before);
    if (seen.length) throw new Error(seen.join("; "));
    console.log(`ok    ${name} (${Date.now() - began} ms)`);
  } catch (error) {
    failures.push(name);
    console.log(`FAIL  ${name}: ${String(error.message).split("\n").slice(0, 6).join("\n      ")}`);
    if (pictures && page)
      await page
        .screenshot({ path: join(pictures, `fail-${name.replace(/\W+/g, "-")}.png`) })
        .catch(() => {});
    // The next step begins without an open dialog.
    for (let i = 0; i < 2; i += 1) await page?.keyboard.press("Escape").catch(() => {});
  }
}
const go = async (hash) => {
  await page.evaluate((h) => {
    location.hash = h;
  }, hash);
  await page.waitForTimeout(50);
};
const button = (name, exact = true) => page.locator("main").getByRole("button", { name, exact });
const dialog = () => page.locator("dialog[open]");
const confirm = async (verb) => {
  await dialog().getByRole("button", { name: verb, exact: true }).click();
  await dialog().waitFor({ state: "detached", timeout: 20_000 });
};
const type = (name) => dialog().getByLabel(`Type “${name}” to go on`).fill(name);
async function audited(where) {
  await page.evaluate(axe);
  const result = await page.evaluate(async () => {
    const found = await window.axe.run(document, { resultTypes: ["violations"] });
    return found.violations.map((v) => ({
      id: v.id,
      impact: v.impact,
      nodes: v.nodes.slice(0, 4).map((n) => `${n.target.join(" ")} ${n.any?.[0]?.message ?? ""}`),
    }));
  });
  const grave = result.filter((v) => v.impact === "serious" || v.impact === "critical");
  if (grave.length) throw new Error(`axe at ${where}: ${JSON.stringify(grave)}`);
}

async function openPage(browser) {
  const context = await browser.newContext({ viewport: { width: 1400, height: 900 }, colorScheme: "light" });
  // The daemon's own headers with files that are newer than those inside it.
  if (dist)
    for (const [path, name] of [
      ["/", "index.html"],
      ["/app.js", "app.js"],
      ["/app.css", "app.css"],
      ["/icon.svg", "icon.svg"],
    ])
      await context.route(origin + path, async (route) => {
        const response = await route.fetch();
        const headers = { ...response.headers() };
        for (const drop of ["content-encoding", "content-length", "etag"]) delete headers[drop];
        await route.fulfill({ status: response.status(), headers, body: readFileSync(join(dist, name)) });
      });
  const made = await context.newPage();
  made.setDefaultTimeout(15_000);
  made.on("pageerror", (error) => problems.push(`error in the page: ${error.message}`));
  made.on("console", (said) => {
    const text = said.text();
    if (said.type() === "error" && !/Failed to load resource/.test(text)) problems.push(`console: ${text}`);
    if (/Content Security Policy|Content-Security-Policy/.test(text)) problems.push(`policy: ${text}`);
  });
  made.on("request", (r) => {
    if (!r.url().startsWith(origin) && !r.url().startsWith("data:"))
      problems.push(`asked another host: ${r.url()}`);
  });
  made.on("dialog", (d) => {
    problems.push(`a dialog of a script: ${d.message()}`);
    void d.dismiss();
  });
  return made;
}

let browser;
try {
  await startDaemon();
  if (dev) {
    front = spawn("node", [join(here, "dev/server.mjs"), "--socket", socket, "--port", String(port)], {
      stdio: "ignore",
    });
    await until("the front answers", () => fetch(`${origin}/`).then((r) => r.ok));
  }
  const [a, b, c, d, e, f, g] = ["a", "b", "c", "d", "e", "f", "g"].map((n) => file(n));
  const cached = ["-o", `cachefile=${join(folder, "zpool.cache")}`];
  run("zpool", "create", ...cached, "-O", `mountpoint=${join(folder, "mnt/tank")}`, "tank", "mirror", a, b);
  const slowDisks = [file("x", 512, slow), file("y", 512, slow)];
  run(
    "zpool",
    "create",
    ...cached,
    "-O",
    `mountpoint=${join(folder, "mnt2/slow")}`,
    "slow",
    "mirror",
    ...slowDisks,
  );
  writeFileSync(join(folder, "mnt2/slow/data"), randomBytes(120 * 2 ** 20));
  run("zpool", "sync", "slow");
  run("zpool", "offline", "tank", b);
  run("zfs", "create", "tank/home");
  run("zfs", "create", "-s", "-V", "64M", "tank/vol");
  writeFileSync(join(folder, "mnt/tank/home/one"), "one");
  run("zfs", "snapshot", "-r", "tank@first");
  run("zfs", "set", "try:evil=<img src=x onerror=alert(1)>", "tank/home");
  browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: [
      "--headless",
      "--no-sandbox",
      "--disable-gpu",
      "--disable-quic",
      "--no-first-run",
      "--disable-background-networking",
      "--disable-component-update",
      "--disable-sync",
    ],
  });
  page = await openPage(browser);
  if (pictures) mkdirSync(pictures, { recursive: true });

  // Signing in, without --only too: all others need it.
  const first = await fetch(`${origin}/`, { headers: { "accept-encoding": "gzip" } });
  const policy = first.headers.get("content-security-policy") ?? "";
  if (!/script-src 'self'/.test(policy)) failures.push("no policy");
  await page.goto(origin);
  await page.getByRole("heading", { name: "Sign in to Cenote" }).waitFor();
  await step("sign in: wrong password", async () => {
    await audited("sign-in");
    await page.getByLabel("User").fill("stranger");
    await page.getByLabel("Password").fill("wrong");
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByRole("alert").waitFor();
  });
  await page.goto(await signInLink());
  await page.locator(".shell").waitFor();
  await step("sign in: by a link, which leaves the address", async () => {
    if (page.url().includes("sign-in")) throw new Error(page.url());
    await page.getByText("Live", { exact: true }).waitFor();
  });

  await step("overview: a degraded pool and what mends it", async () => {
    await go("/overview");
    await page.getByText("b was taken offline").waitFor();
    await audited("overview");
    await button("Take online").click();
    await dialog().getByText(`cenote zpool online tank ${b}`).waitFor();
    await audited("a dialog");
    await confirm("Take online");
    await page.getByText("b was taken offline").waitFor({ state: "detached" });
  });
  await step("keyboard: the skip link, Escape, focus goes back", async () => {
    await go("/pool/tank");
    await button("Export …").focus();
    await page.keyboard.press("Enter");
    await dialog().waitFor();
    await page.keyboard.press("Escape");
    await dialog().waitFor({ state: "detached" });
    const focused = await page.evaluate(() => document.activeElement?.textContent);
    if (!focused?.includes("Export")) throw new Error(`the focus is at ${focused}`);
  });
  await step("pool: a scrub is begun, paused, resumed and stopped", async () => {
    // Scrubs that make no progress can be looked at in peace.
    run("tunable", "set", "zfs_scan_suspend_progress=1");
    await go("/pool/slow");
    await button("Scrub …").click();
    await confirm("Scrub");
    await button("Pause scrub").click();
    await confirm("Pause scrub");
    await button("Resume scrub").click();
    await audited("pool with a scrub");
    await confirm("Resume scrub");
    await button("Stop scrub").click();
    await confirm("Stop scrub");
    await page.getByText("was stopped").waitFor();
    run("tunable", "reset", "zfs_scan_suspend_progress");
  });
  await step("pool: a device is replaced", async () => {
    await go("/pool/tank");
    await page.locator(`a.disk[title="${b}"]`).click();
    await audited("a device");
    await button("Replace …").last().click();
    await dialog().getByLabel("Or a path").fill(c);
    await dialog().getByRole("button", { name: "Use", exact: true }).click();
    await dialog().getByText(`cenote zpool replace tank ${b} ${c}`).waitFor();
    await confirm("Replace");
    await until(
      "the resilver is done",
      async () =>
        !JSON.stringify((await api("pool-status", { pools: ["tank"] })).entries[0].vdevs).includes(b),
    );
    await page.locator(`a.disk[title="${c}"]`).waitFor();
  });
  await step("pool: properties, history, damaged files", async () => {
    await go("/pool/tank?tab=properties");
    await page.getByRole("button", { name: "Set comment" }).click();
    await dialog().getByLabel("Value").fill("<b>bold</b>");
    await confirm("Set");
    await page.getByText("<b>bold</b>").waitFor();
    await audited("properties of a pool");
    await go("/pool/tank?tab=history");
    await page.getByText("zpool set", { exact: false }).first().waitFor();
    await audited("history");
    await go("/pool/tank?tab=damaged");
    await page.getByText("No file is known to be damaged.").waitFor();
  });
  await step("pool: a spare is added and removed", async () => {
    await go("/pool/tank");
    await button("Add devices …").click();
    await dialog().getByLabel("For what").selectOption("spare");
    await dialog().getByLabel("Or paths of devices or files").fill(d);
    await dialog().getByRole("button", { name: "Add", exact: true }).first().click();
    await type("tank");
    await dialog().locator("footer").getByRole("button", { name: "Add", exact: true }).click();
    await dialog().waitFor({ state: "detached" });
    await page.locator(`a.disk[title="${d}"]`).click();
    await button("Remove …").click();
    await type("d");
    await confirm("Remove");
    await page.locator(`a.disk[title="${d}"]`).waitFor({ state: "detached" });
  });
  await step("pool: created on files, checked, exported, imported, destroyed", async () => {
    await go("/create-pool");
    await page.getByLabel("Or paths of devices or files").fill([e, f, g].join(" "));
    await button("Add").click();
    await page.getByLabel("Size of the disks that were typed").fill("128M");
    await page.getByRole("radio", { name: /RAID-Z1/ }).check();
    await page.getByLabel("Name", { exact: true }).fill("fresh");
    await page.getByLabel("Mount below").fill(join(folder, "mnt4"));
    await audited("create a pool");
    if (pictures) await page.screenshot({ path: join(pictures, "create-filled.png"), fullPage: true });
    await button("Check only").click();
    await page.getByText("The daemon would create it like this.").waitFor();
    await button("Create …").click();
    await type("fresh");
    await confirm("Create");
    await page.getByRole("heading", { name: "fresh", level: 1 }).waitFor();
    await page.getByText("raidz1-0").waitFor();
    await button("Export …").click();
    await type("fresh");
    await confirm("Export");
    await page.getByText("No pool “fresh” is open here.").waitFor();
    await go("/import-pool");
    await page.getByLabel("Folders or devices").fill(folder);
    await button("Look").click();
    await page
      .locator("section.card", { hasText: "fresh" })
      .getByRole("button", { name: "Import …" })
      .click();
    await audited("import");
    await dialog().getByLabel("Mount below").fill(join(folder, "mnt4"));
    await confirm("Import");
    await page.getByRole("heading", { name: "fresh", level: 1 }).waitFor();
    await button("Destroy …").click();
    await type("fresh");
    await confirm("Destroy");
    await page.getByText("No pool “fresh” is open here.").waitFor();
  });
  await step("datasets: created, set, inherited, renamed, destroyed", async () => {
    await go("/datasets/tank");
    await page.getByRole("link", { name: "home", exact: true }).waitFor();
    await audited("datasets");
    await go("/datasets");
    await button("Create …").click();
    await dialog().getByLabel("Name", { exact: true }).fill("tank/made");
    await dialog().getByLabel("Quota").fill("50M");
    await confirm("Create");
    await page.getByRole("heading", { name: "made", level: 1 }).waitFor();
    await page.getByText("50M").first().waitFor();
    await go("/dataset/tank/made?tab=properties");
    await page.getByRole("button", { name: "Set atime" }).click();
    await dialog().getByLabel("Value").fill("off");
    await confirm("Set");
    await audited("properties of a dataset");
    await page.getByRole("button", { name: "Inherit atime" }).click();
    await confirm("Inherit");
    await page.getByRole("button", { name: "Inherit atime" }).waitFor({ state: "detached" });
    await button("Rename …").click();
    await dialog().getByLabel("Another name").fill("tank/other");
    await confirm("Rename");
    await page.getByRole("heading", { name: "other", level: 1 }).waitFor();
    await button("Destroy …").click();
    await dialog().getByText("will be gone for good").waitFor();
    await type("other");
    await confirm("Destroy");
    await page.getByRole("heading", { name: "tank", level: 1 }).waitFor();
  });
  await step("datasets: a name with markup stays text", async () => {
    await go("/dataset/tank/home?tab=properties");
    await page.getByText("<img src=x onerror=alert(1)>").waitFor();
  });
  await step("datasets: errors of the daemon are shown in place, and what was typed stays", async () => {
    await go("/datasets");
    await button("Create …").click();
    await dialog().getByLabel("Name", { exact: true }).fill("tank/none/below");
    await dialog().getByRole("button", { name: "Create", exact: true }).click();
    await dialog().getByRole("alert").waitFor();
    if ((await dialog().getByLabel("Name", { exact: true }).inputValue()) !== "tank/none/below")
      throw new Error("it was lost");
    await audited("an error in a dialog");
    await page.keyboard.press("Escape");
  });
  await step("snapshots: taken, held, released, cloned, compared, rolled back, destroyed", async () => {
    await go("/dataset/tank/home?tab=snapshots");
    await page.getByRole("link", { name: "@first" }).waitFor();
    await button("Take snapshot …").click();
    await dialog().getByLabel("Name", { exact: true }).fill("second");
    await confirm("Take");
    await page.getByRole("link", { name: "@second" }).waitFor();
    await audited("snapshots");
    await page.getByText("2 snapshots", { exact: true }).waitFor();
    await page.getByLabel("Search").fill("sec");
    await page.getByText("1 snapshot", { exact: true }).waitFor();
    await page.getByLabel("Search").fill("");
    writeFileSync(join(folder, "mnt/tank/home/two"), "two");
    await page.getByRole("link", { name: "@first" }).click();
    await button("Hold …").click();
    await confirm("Hold");
    await page.getByText("Held as “keep”").waitFor();
    await button("Release").click();
    await confirm("Release");
    await page.getByText("Held as “keep”").waitFor({ state: "detached" });
    await button("Compare").click();
    await page.locator("code", { hasText: "/home/two" }).waitFor();
    await audited("a snapshot");
    await button("Clone …").click();
    await dialog().getByLabel("Another name").fill("tank/cloned");
    await confirm("Clone");
    await page.getByRole("heading", { name: "cloned", level: 1 }).waitFor();
    run("zfs", "destroy", "tank/cloned");
    await go("/dataset/tank/home@second");
    await button("Roll back …").click();
    await type("second");
    await confirm("Roll back");
    await until("the file is gone", () => !existsSync(join(folder, "mnt/tank/home/two")));
    await go("/dataset/tank/home?tab=snapshots");
    await page.getByRole("checkbox", { name: /Choose tank\/home@second/ }).check();
    await button("Destroy 1 chosen …").click();
    await type("second");
    await confirm("Destroy");
    await page.getByRole("link", { name: "@second" }).waitFor({ state: "detached" });
  });
  await step("files: a deleted one is brought back from a snapshot", async () => {
    rmSync(join(folder, "mnt/tank/home/one"));
    await go("/dataset/tank/home@first");
    await button("Bring back one").click();
    await audited("files");
    await confirm("Bring back");
    if (readFileSync(join(folder, "mnt/tank/home/one"), "utf8") !== "one")
      throw new Error("it is another file");
    await go("/dataset/tank/home?tab=files");
    await page.getByText("one", { exact: true }).waitFor();
  });
  await step("files: a folder is brought back, and what is there by now stays", async () => {
    const home = join(folder, "mnt/tank/home");
    mkdirSync(join(home, "papers/deep"), { recursive: true });
    writeFileSync(join(home, "papers/a"), "old a");
    writeFileSync(join(home, "papers/deep/b"), "old b");
    run("zfs", "snapshot", "tank/home@papers");
    rmSync(join(home, "papers/deep"), { recursive: true });
    writeFileSync(join(home, "papers/a"), "new a");
    await go("/dataset/tank/home@papers");
    await button("Bring back papers").click();
    await dialog().getByLabel("Files that are there by now").selectOption("keep");
    await audited("a folder is brought back");
    await confirm("Bring back");
    if (readFileSync(join(home, "papers/deep/b"), "utf8") !== "old b") throw new Error("it is not back");
    if (readFileSync(join(home, "papers/a"), "utf8") !== "new a") throw new Error("it was replaced");
    rmSync(join(home, "papers"), { recursive: true });
    run("zfs", "destroy", "tank/home@papers");
  });
  await step("streams: saved as a file, stopped, received, and lines for a shell", async () => {
    writeFileSync(join(folder, "mnt/tank/home/large"), randomBytes(8 * 2 ** 20));
    run("zfs", "snapshot", "tank/home@sent");
    await go("/dataset/tank/home?tab=transfer");
    await page.getByText(/Size: about 8/).waitFor();
    await audited("send and receive");
    await page.getByLabel("Machine").fill("backup.lan");
    await page.getByText("| ssh backup.lan zfs receive -s backup/home").waitFor();
    await page.getByText("cenote replicate tank/home backup.lan:backup/home").waitFor();
    const [download] = await Promise.all([page.waitForEvent("download"), button("Save as a file").click()]);
    const saved = join(folder, download.suggestedFilename());
    await download.saveAs(saved);
    await page.getByText(/tank-home-sent.zfs has 8/).waitFor();
    await page.getByLabel("Only what changed since").selectOption({ label: "@first" });
    await page
      .getByText(/zfs send -Lce -I tank\/home@first tank\/home@sent/)
      .first()
      .waitFor();
    await page.getByLabel("File with the stream").setInputFiles(saved);
    await page.getByLabel("Dataset", { exact: true }).fill("tank/received");
    await button("Receive").click();
    await page.getByRole("heading", { name: "received", level: 1 }).waitFor({ timeout: 30_000 });
    const got = readFileSync(join(folder, "mnt/tank/received/large"));
    if (!got.equals(readFileSync(join(folder, "mnt/tank/home/large")))) throw new Error("it is another file");
    // A stream that is damaged is refused in words of the daemon.
    writeFileSync(saved, readFileSync(saved).subarray(0, 4096));
    await go("/dataset/tank?tab=transfer");
    await page.getByLabel("File with the stream").setInputFiles(saved);
    await page.getByLabel("Dataset", { exact: true }).fill("tank/broken");
    await button("Receive").click();
    await page.locator("main").getByRole("alert").waitFor();
    await audited("a refused stream");
    run("zfs", "destroy", "-r", "tank/received");
    run("zfs", "destroy", "tank/home@sent");
    rmSync(join(folder, "mnt/tank/home/large"));
  });
  await step("permissions: granted and taken away", async () => {
    await go("/dataset/tank/home?tab=permissions");
    await page.getByText("Nothing is granted here").waitFor();
    await button("Grant …").click();
    await dialog().getByLabel("Names").fill("daemon");
    await dialog().getByLabel("snapshot", { exact: true }).check();
    await dialog().getByLabel("Others").fill("mount, userquota");
    await dialog().getByText("cenote zfs allow -u daemon snapshot,mount,userquota tank/home").waitFor();
    await audited("permissions are granted");
    await confirm("Grant");
    await page.getByText("User daemon").waitFor();
    await audited("permissions");
    await button("Take away …").click();
    await confirm("Take away");
    await page.getByText("Nothing is granted here").waitFor();
  });
  await step("users: what they use, and their quotas", async () => {
    run("zpool", "sync", "tank");
    await go("/dataset/tank/home?tab=users");
    await page.getByRole("cell", { name: "root", exact: true }).waitFor();
    await button("Set a quota …").click();
    await dialog().getByLabel("User", { exact: true }).fill("daemon");
    await dialog().getByLabel("Bytes that they may use").fill("10M");
    await audited("a quota");
    await confirm("Set");
    await page.getByRole("cell", { name: "10M", exact: true }).waitFor();
    await audited("users of a filesystem");
    await page.getByLabel("Of", { exact: true }).selectOption("group");
    await page.getByRole("columnheader", { name: "Group" }).waitFor();
  });
  await step("volumes: created, resized, lines for clients", async () => {
    await go("/datasets");
    await button("Create …").click();
    await dialog().getByLabel("Kind").selectOption("volume");
    await dialog().getByLabel("Name", { exact: true }).fill("tank/disk");
    await dialog().getByLabel("Size", { exact: true }).fill("32M");
    await dialog().getByText("cenote zfs create -s -V 32M tank/disk").waitFor();
    await confirm("Create");
    await button("Resize …").click();
    await dialog().getByLabel("Value").fill("48M");
    await confirm("Set");
    await page.getByText("48M").first().waitFor();
    await go("/dataset/tank/disk?tab=share");
    await page.getByText(`iscsiadm -m discovery -t sendtargets -p 127.0.0.1:${ports.iscsi}`).waitFor();
    await audited("share of a volume");
  });
  await step("encryption: created, key unloaded and loaded", async () => {
    await go("/datasets");
    await button("Create …").click();
    await dialog().getByLabel("Name", { exact: true }).fill("tank/secret");
    await dialog().getByLabel("Encrypt it with a passphrase").check();
    await dialog().getByLabel("Passphrase", { exact: true }).fill("correct horse");
    await confirm("Create");
    await button("Unmount …").click();
    await confirm("Unmount");
    await go("/dataset/tank/secret?tab=encryption");
    await button("Unload key …").click();
    await type("secret");
    await confirm("Unload key");
    await button("Load key …").click();
    await dialog().getByLabel("Passphrase, or hex digits of the key").fill("wrong horse");
    await dialog().getByRole("button", { name: "Load", exact: true }).click();
    await dialog().getByRole("alert").waitFor();
    await dialog().getByLabel("Passphrase, or hex digits of the key").fill("correct horse");
    await confirm("Load");
    await page.getByText("loaded", { exact: true }).waitFor();
    await audited("encryption");
    await button("Change key …").click();
    await dialog().getByLabel("Passphrase", { exact: true }).fill("battery staple");
    await dialog().getByLabel("The passphrase again").fill("battery staple");
    await audited("another key");
    await confirm("Change");
    await button("Unload key …").click();
    await type("secret");
    await confirm("Unload key");
    await button("Load key …").click();
    await dialog().getByLabel("Passphrase, or hex digits of the key").fill("battery staple");
    await confirm("Load");
    await page.getByText("loaded", { exact: true }).waitFor();
  });
  await step("schedules: snapshots and scrubs", async () => {
    await go("/dataset/tank/home?tab=schedule");
    await button("Schedule …").click();
    await dialog().getByLabel("Hour", { exact: true }).fill("24");
    await dialog().getByText("cenote snapshot-schedule tank/home --hourly 24 -r").waitFor();
    await confirm("Set");
    await page.getByText("hourly=24,recursive").first().waitFor();
    await audited("schedule");
    await go("/pool/tank");
    await button("Schedule …").click();
    await dialog().getByLabel("How often").fill("monthly");
    await confirm("Set");
    await page.getByText("Scrubbed by itself: monthly").waitFor();
  });
  await step("shares: volumes, NFS, mounts, clients", async () => {
    await go("/dataset/tank/home?tab=share");
    await button("Set sharenfs …").click();
    await dialog().getByLabel("Value").fill("on");
    await confirm("Set");
    await go("/shares");
    await page.getByRole("link", { name: "tank/vol" }).waitFor();
    await page.getByRole("button", { name: "Connect tank/vol" }).click();
    await page.getByText("nbdinfo").first().waitFor();
    await audited("shares");
    await go("/shares?tab=nfs");
    await page.getByText("mount -t nfs").first().waitFor();
    await audited("nfs");
    await go("/shares?tab=mounts");
    await page.getByText(join(folder, "mnt/tank/home")).first().waitFor();
    await go("/shares?tab=clients");
    await page.getByText("mount").first().waitFor();
    await audited("clients");
  });
  await step("performance: plots move, the what-if slider answers", async () => {
    await go("/performance/tank");
    for (let i = 0; i < 30; i += 1)
      writeFileSync(join(folder, "mnt/tank/home/load"), Buffer.alloc(2 ** 20, i));
    await page.locator(".u-wrap canvas").first().waitFor();
    await page.waitForTimeout(5000);
    if ((await page.locator(".u-wrap canvas").count()) < 6) throw new Error("too few plots");
    await page.locator("#what-if-size").focus();
    await page.keyboard.press("Home");
    await page.getByText("It would answer").waitFor();
    await audited("performance");
  });
  await step("events: they come by themselves, with details", async () => {
    await go("/events");
    await page.getByText("pool_create").first().waitFor();
    await audited("events");
    run("zpool", "offline", "tank", a);
    await page.getByText("statechange").first().waitFor();
    run("zpool", "online", "tank", a);
    await page
      .getByRole("button", { name: /Details of event/ })
      .first()
      .click();
    await dialog().getByText("pool_guid").waitFor();
    await page.keyboard.press("Escape");
  });
  await step("alerts: a hook is added, tested and removed", async () => {
    await go("/hooks");
    await button("Add an alert …").click();
    await dialog().getByLabel("Name", { exact: true }).fill("note");
    await dialog().getByLabel("What is done").selectOption("command");
    await dialog()
      .getByLabel("Command", { exact: true })
      .fill(`echo "$ZEVENT_CLASS" > ${join(folder, "told")}`);
    await audited("add an alert");
    await confirm("Save");
    await button("Test note").click();
    await until("the hook ran", () => existsSync(join(folder, "told")));
    await page.getByText("ZEVENT_CLASS=").first().waitFor();
    await audited("alerts");
    await button("Remove …").click();
    await confirm("Remove");
    await page.getByText("No alert is set").waitFor();
  });
  await step("tunables: set and back", async () => {
    await go("/tunables");
    await page.getByLabel("Search").fill("zfs_txg_timeout");
    await page.getByRole("button", { name: "Set zfs_txg_timeout" }).click();
    await dialog().getByLabel("Value").fill("7");
    await confirm("Set");
    await page.getByText("7 s", { exact: true }).waitFor();
    await audited("tunables");
    await page.getByRole("button", { name: "Set zfs_txg_timeout" }).click();
    await dialog().getByLabel("Back to the default").check();
    await confirm("Set");
    await page.getByText("5 s", { exact: true }).waitFor();
  });
  await step("audit log and lab", async () => {
    await go("/audit");
    await page.getByText("tunable-set").first().waitFor();
    await audited("audit");
    await go("/lab");
    await page.getByText("cenote lab recipes").waitFor();
    await audited("lab");
  });
  await step("users and tokens", async () => {
    await go("/users");
    await button("Add a user …").click();
    await dialog().getByLabel("User").fill("ann");
    await dialog().getByLabel("Password", { exact: true }).fill("a password of ann");
    await dialog().getByLabel("The password again").fill("a password of ann");
    await confirm("Save");
    await page.getByText("ann", { exact: true }).waitFor();
    await button("Create a token …").click();
    await dialog().getByLabel("Name", { exact: true }).fill("backup");
    await dialog().getByRole("button", { name: "Create", exact: true }).click();
    await dialog().getByText("Copy it now").waitFor();
    await audited("a token");
    await dialog().getByRole("button", { name: "I have it" }).click();
    await page.getByText("backup", { exact: true }).waitFor();
    await audited("users");
  });
  await step("roles: a viewer sees why buttons are off", async () => {
    const other = await openPage(browser);
    await other.goto(origin);
    await other.getByLabel("User").fill("ann");
    await other.getByLabel("Password").fill("a password of ann");
    await other.getByRole("button", { name: "Sign in" }).click();
    await other.locator(".shell").waitFor();
    await other.evaluate(() => {
      location.hash = "#/pool/tank";
    });
    const off = other.getByRole("button", { name: /Destroy … – Only for the role admin; yours is viewer/ });
    await off.waitFor();
    await off.click({ force: true });
    if (await other.locator("dialog[open]").count()) throw new Error("the dialog opened");
    for (const where of [
      "overview",
      "datasets",
      "shares",
      "performance",
      "events",
      "hooks",
      "audit",
      "tunables",
      "users",
    ]) {
      await other.evaluate((h) => {
        location.hash = `#/${h}`;
      }, where);
      await other.waitForTimeout(400);
      if (await other.locator(".fault").count())
        throw new Error(`${where}: ${await other.locator(".fault").first().innerText()}`);
    }
    await other.context().close();
  });
  if (!few) {
    const m = file("m", 1024);
    run("zpool", "create", ...cached, "-O", "mountpoint=none", "many", m);
    await go("/datasets");
    const all = Array.from({ length: 999 }, (_, i) => `many/d${String(i).padStart(3, "0")}`);
    const worker = async () => {
      for (let n = all.pop(); n; n = all.pop()) await api("dataset-create", { name: n, no_mount: true });
    };
    await Promise.all(Array.from({ length: 8 }, worker));
    for (let i = 0; i < 10; i += 1) await api("snapshot-create", { names: [`many@s${i}`], recursive: true });
    await step("1,000 datasets and 10,000 snapshots stay fluid", async () => {
      await go("/datasets/many");
      await page.getByRole("link", { name: "d000", exact: true }).waitFor();
      const rows = await page.locator(".v-box .v-row").count();
      if (rows > 120) throw new Error(`${rows} rows are in the page`);
      await page.getByLabel("Search").fill("d998");
      await page.getByRole("link", { name: "many/d998" }).waitFor();
      await go("/dataset/many?tab=snapshots");
      await page.getByRole("link", { name: "@s9", exact: true }).waitFor();
      const began = Date.now();
      await page.getByLabel("Also of everything below").check();
      await page.getByText("10000 snapshots").waitFor({ timeout: 60_000 });
      const took = Date.now() - began;
      const asked = Date.now();
      await api("dataset-list", {
        names: ["many"],
        kinds: ["snapshot"],
        properties: ["used", "referenced", "creation", "userrefs"],
      });
      console.log(`      10,000 snapshots after ${took} ms; the daemon alone took ${Date.now() - asked} ms`);
      // The same with answers that are there at once: what the page itself takes.
      const text = await raw("dataset-list", {
        names: ["many"],
        kinds: ["snapshot"],
        properties: ["used", "referenced", "creation", "userrefs"],
      });
      await page.route("**/v1/dataset-list", (route) =>
        route.fulfill({ body: text, contentType: "application/json" }),
      );
      await go("/dataset/many?tab=schedule");
      await go("/dataset/many?tab=snapshots");
      await page.getByLabel("Also of everything below").check();
      const alone = await page.evaluate(async () => {
        const t = performance.now();
        while (!document.body.textContent.includes("10000 snapshots")) {
          if (performance.now() - t > 20_000) throw new Error("they do not come");
          await new Promise((go) => requestAnimationFrame(go));
        }
        return performance.now() - t;
      });
      await page.unroute("**/v1/dataset-list");
      console.log(`      the page alone took ${Math.round(alone)} ms`);
      const frames = await page.evaluate(async () => {
        const box = document.querySelector(".v-box");
        let worst = 0;
        for (let i = 0; i < 40; i += 1) {
          const t = performance.now();
          box.scrollTop += 7919;
          await new Promise((go) => requestAnimationFrame(() => setTimeout(go)));
          worst = Math.max(worst, performance.now() - t);
        }
        return worst;
      });
      console.log(`      the slowest frame of 40 jumps took ${Math.round(frames)} ms`);
    });
  }
  await step("the daemon is killed and restarted under an open page", async () => {
    await go("/datasets");
    await button("Create …").click();
    await dialog().getByLabel("Name", { exact: true }).fill("tank/after-the-crash");
    await stopDaemon("SIGKILL");
    await page.getByText("Connection lost", { exact: true }).waitFor();
    await audited("connection lost");
    await startDaemon();
    if (!dev) {
      // Sessions end with the daemon: the form comes over the page.
      await page.getByRole("heading", { name: "Sign in again" }).waitFor({ timeout: 30_000 });
      const form = page.locator("dialog[open]").last();
      await form.getByLabel("User").fill("ann");
      const link = await signInLink();
      await page.evaluate((l) => {
        location.hash = new URL(l).hash;
      }, link);
      await page.getByRole("heading", { name: "Sign in again" }).waitFor({ state: "detached" });
    }
    await page.getByText("Live", { exact: true }).waitFor({ timeout: 30_000 });
    const kept = await dialog().getByLabel("Name", { exact: true }).inputValue();
    if (kept !== "tank/after-the-crash") throw new Error(`what was typed became '${kept}'`);
    await until("the pool is there again", async () =>
      (await api("pool-list")).entries.some((p) => p.name === "tank"),
    );
    await confirm("Create");
    await page.getByRole("heading", { name: "after-the-crash", level: 1 }).waitFor();
  });
  if (dev)
    await step("the session ends under an open page", async () => {
      await go("/pool/tank");
      await fetch(`${origin}/dev/end-sessions`, { method: "POST" });
      await page.getByRole("heading", { name: "Sign in again" }).waitFor();
      await page.getByLabel("User").fill("admin");
      await page.getByLabel("Password").fill("admin");
      await page.getByRole("button", { name: "Sign in" }).click();
      await page.getByRole("heading", { name: "Sign in again" }).waitFor({ state: "detached" });
      await page.getByRole("heading", { name: "tank", level: 1 }).waitFor();
    });

  if (pictures) {
    run("zpool", "offline", "tank", a);
    await api("pool-scan", { pool: "slow", action: "scrub" });
    await until(
      "the scrub has begun",
      async () => (await api("pool-status", { pools: ["slow"] })).entries[0].scan.issued > 20e6,
    );
    run("tunable", "set", "zfs_scan_suspend_progress=1");
    const places = {
      overview: "/overview",
      pool: "/pool/tank",
      "pool-scrub": "/pool/slow",
      "pool-properties": "/pool/tank?tab=properties",
      history: "/pool/tank?tab=history",
      create: "/create-pool",
      import: "/import-pool",
      datasets: "/datasets",
      dataset: "/dataset/tank/home",
      snapshots: "/dataset/tank/home?tab=snapshots",
      properties: "/dataset/tank/home?tab=properties",
      schedule: "/dataset/tank/home?tab=schedule",
      snapshot: "/dataset/tank/home@first",
      "volume-share": "/dataset/tank/vol?tab=share",
      shares: "/shares",
      nfs: "/shares?tab=nfs",
      clients: "/shares?tab=clients",
      performance: "/performance/slow",
      events: "/events",
      hooks: "/hooks",
      audit: "/audit",
      tunables: "/tunables",
      users: "/users",
      lab: "/lab",
    };
    for (const scheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme: scheme });
      for (const width of [360, 800, 1400]) {
        await page.setViewportSize({ width, height: 900 });
        await step(`pictures: ${scheme}, ${width} px`, async () => {
          for (const [name, hash] of Object.entries(places)) {
            await go(hash);
            await page.waitForTimeout(name === "performance" ? 4500 : 700);
            await page.screenshot({ path: join(pictures, `${name}-${width}-${scheme}.png`), fullPage: true });
            const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
            if (wide > 1) problems.push(`${name} is ${wide} px too wide`);
            if (width === 800)
              await audited(`${name}, ${scheme}`).catch((error) => problems.push(error.message));
          }
          if (width === 360) {
            await go("/overview");
            await page.getByRole("button", { name: "Menu" }).click();
            await page.screenshot({ path: join(pictures, `menu-360-${scheme}.png`) });
            await go("/dataset/tank/home");
            await button("Destroy …").click();
            await page.waitForTimeout(500);
            await page.screenshot({ path: join(pictures, `dialog-360-${scheme}.png`) });
            await page.keyboard.press("Escape");
          }
        });
      }
    }
  }
} catch (error) {
  console.log(error);
  failures.push("the script itself");
} finally {
  await browser?.close();
  front?.kill();
  if (daemon && daemon.exitCode === null) {
    spawnSync(cenote, ["zpool", "export", "-a"], { env: environment });
    await stopDaemon("SIGTERM");
  }
  if (!given("keep"))
    try {
      rmSync(folder, { recursive: true, force: true });
    } catch (error) {
      console.log(`${folder} stays: ${error.message}`);
    }
}
console.log(failures.length ? `${failures.length} failed: ${failures.join("; ")}` : "all is well");
process.exit(failures.length ? 1 : 0);
