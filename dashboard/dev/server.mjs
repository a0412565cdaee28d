// For trying the page without the daemon's own listener: serves dist/, signs in, and passes /v1 on to the Unix
// socket of a daemon. It answers as the daemon's dashboard does, but keeps nothing safe: for development only.
//
//   node dev/server.mjs --socket PATH [--port 7227] [--slow MS] [--dist DIR]
//
// Prints a link to sign in. Users for trying: viewer, operator and admin, with their names as passwords.
import { createServer, request } from "node:http";
import { constants, copyFileSync, lstatSync, readdirSync, readFileSync } from "node:fs";
import { randomBytes } from "node:crypto";
import { gzipSync } from "node:zlib";
import { hostname } from "node:os";

const option = (name, otherwise) => {
  const at = process.argv.indexOf(`--${name}`);
  return at < 0 ? otherwise : process.argv[at + 1];
};
const socket = option("socket", process.env.CENOTE_SOCKET);
const port = Number(option("port", "7227"));
const slow = Number(option("slow", "0"));
const dist = new URL(option("dist", "../dist/"), import.meta.url);
const openapi = JSON.parse(readFileSync(new URL("../../docs/src/openapi.json", import.meta.url), "utf8"));

const ORDER = { viewer: 0, operator: 1, admin: 2 };
const CSP =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
  "font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
const FILES = {
  "/": ["index.html", "text/html; charset=utf-8"],
  "/app.js": ["app.js", "text/javascript; charset=utf-8"],
  "/app.css": ["app.css", "text/css; charset=utf-8"],
  "/icon.svg": ["icon.svg", "image/svg+xml"],
};

const sessions = new Map();
const links = new Map();
const users = new Map([
  ["viewer", { role: "viewer", password: "viewer", tokens: [] }],
  ["operator", { role: "operator", password: "operator", tokens: [] }],
  ["admin", { role: "admin", password: "admin", tokens: [] }],
]);
let failures = 0;

function makeLink() {
  const token = randomBytes(24).toString("base64url");
  links.set(token, { user: "root", role: "admin" });
  return `http://127.0.0.1:${port}/#sign-in=${token}`;
}

function answer(res, status, body, headers = {}) {
  res.writeHead(status, { "content-type": "application/json", "cache-control": "no-store", ...headers });
  res.end(body === undefined ? undefined : JSON.stringify(body));
}
const refuse = (res, status, kind, message, headers) => answer(res, status, { kind, message }, headers);

function sessionOf(req) {
  const cookie = /(?:^|;\s*)cenote=([^;]+)/.exec(req.headers.cookie ?? "")?.[1];
  return cookie ? sessions.get(cookie) : undefined;
}
const shown = (s) => ({
  user: s.user,
  role: s.role,
  csrf: s.csrf,
  version: "0.1.0",
  host: option("host", hostname()),
  expires_in: 43200,
});

async function bodyOf(req) {
  const parts = [];
  for await (const part of req) parts.push(part);
  return Buffer.concat(parts);
}

// Actions that only the daemon's own dashboard has.
const GIB = 2 ** 30;
const DISKS = JSON.parse(option("disks", "null")) ?? [
  {
    path: "/dev/sda",
    by_id: "/dev/disk/by-id/ata-EXAMPLE_SSD_A1",
    model: "EXAMPLE SSD 480",
    serial: "A1",
    size: 480 * GIB,
    rotational: false,
    sector: 512,
    in_use: "partitions: /boot, /",
    removable: false,
  },
  {
    path: "/dev/sdb",
    by_id: "/dev/disk/by-id/ata-EXAMPLE_HDD_B1",
    model: "EXAMPLE HDD 4T",
    serial: "B1",
    size: 3726 * GIB,
    rotational: true,
    sector: 4096,
    removable: false,
    smart: { healthy: true, temperature: 34, hours: 18211 },
  },
  {
    path: "/dev/sdc",
    by_id: "/dev/disk/by-id/ata-EXAMPLE_HDD_C1",
    model: "EXAMPLE HDD 4T",
    serial: "C1",
    size: 3726 * GIB,
    rotational: true,
    sector: 4096,
    removable: false,
    smart: { healthy: false, temperature: 51, hours: 40120 },
  },
];
const ask = (action, body) =>
  new Promise((done, fail) => {
    const asked = request(
      { socketPath: socket, path: `/v1/${action}`, method: "POST", headers: { host: "localhost" } },
      (r) => {
        let text = "";
        r.on("data", (d) => (text += d));
        r.on("end", () => done(JSON.parse(text)));
      },
    );
    asked.on("error", fail);
    asked.end(JSON.stringify(body));
  });
async function mountOf(name) {
  const [dataset, tag] = name.split("@");
  const at = (await ask("mount-list", {})).find((m) => m.dataset === dataset)?.mountpoint;
  if (!at) throw new Error(`'${dataset}' is not mounted`);
  return { live: at, at: tag ? `${at}/.zfs/snapshot/${tag}` : at };
}
const own = {
  "file-list": [
    "admin",
    async ({ dataset, path }) => {
      const { at } = await mountOf(dataset);
      const kind = (s) =>
        s.isDirectory() ? "directory" : s.isFile() ? "file" : s.isSymbolicLink() ? "symlink" : "other";
      const entries = readdirSync(at + path).map((name) => {
        const s = lstatSync(`${at}${path}/${name}`);
        return {
          name,
          is_exact: true,
          kind: kind(s),
          size: s.size,
          modified: Math.floor(s.mtimeMs / 1000),
          mode: s.mode & 0o7777,
        };
      });
      return { entries, next: null };
    },
  ],
  "file-restore": [
    "admin",
    async ({ snapshot, path, to, overwrite }) => {
      const { at, live } = await mountOf(snapshot);
      copyFileSync(at + path, live + (to ?? path), overwrite ? 0 : constants.COPYFILE_EXCL);
      return { path: to ?? path, size: lstatSync(at + path).size };
    },
  ],
  "disk-list": ["operator", () => DISKS],
  "dashboard-users": [
    "admin",
    () => [...users].map(([name, u]) => ({ name, role: u.role, tokens: u.tokens })),
  ],
  "dashboard-user-set": [
    "admin",
    ({ name, role, password }) => {
      const known = users.get(name) ?? { role: "viewer", tokens: [] };
      users.set(name, { ...known, role: role ?? known.role, password: password ?? known.password });
      return null;
    },
  ],
  "dashboard-user-remove": ["admin", ({ name }) => (users.delete(name), null)],
  "dashboard-token-create": [
    "admin",
    ({ name, role, days }) => {
      const end = days ? Math.floor(Date.now() / 1000) + days * 86400 : null;
      const owner = users.get("admin");
      owner.tokens.push({ name, role, ends: end });
      return { token: randomBytes(24).toString("base64url") };
    },
  ],
  "dashboard-token-remove": [
    "admin",
    ({ name }) => {
      for (const u of users.values()) u.tokens = u.tokens.filter((t) => t.name !== name);
      return null;
    },
  ],
};

async function handle(req, res) {
  const path = new URL(req.url, "http://localhost").pathname;
  const host = req.headers.host ?? "";
  if (!/^(127\.0\.0\.1|localhost)(:\d+)?$/.test(host))
    return refuse(res, 403, "refused", `unknown host '${host}'`);
  if (req.method === "GET" && FILES[path]) {
    const [name, type] = FILES[path];
    let data = readFileSync(new URL(name, dist));
    const headers = {
      "content-type": type,
      "cache-control": "no-cache",
      "content-security-policy": CSP,
      "x-content-type-options": "nosniff",
      "referrer-policy": "no-referrer",
    };
    if (/gzip/.test(req.headers["accept-encoding"] ?? "")) {
      data = gzipSync(data);
      headers["content-encoding"] = "gzip";
    }
    res.writeHead(200, headers);
    return res.end(data);
  }
  if (req.method === "POST" && path === "/sign-in") {
    const given = JSON.parse((await bodyOf(req)).toString() || "{}");
    if (failures >= 5) {
      setTimeout(() => {
        failures = 0;
      }, 3000).unref();
      return refuse(res, 429, "busy", "too many failed attempts: try again later", { "retry-after": "3" });
    }
    let found = given.link && links.get(given.link);
    if (found) links.delete(given.link);
    const user = users.get(given.user);
    if (!found && user && user.password === given.password) found = { user: given.user, role: user.role };
    if (!found) {
      failures += 1;
      return refuse(
        res,
        401,
        "refused",
        given.link ? "this link was used already, or is too old" : "wrong user name or password",
      );
    }
    const id = randomBytes(24).toString("base64url");
    const session = { ...found, csrf: randomBytes(16).toString("base64url") };
    sessions.set(id, session);
    return answer(res, 200, shown(session), {
      "set-cookie": `cenote=${id}; HttpOnly; SameSite=Strict; Path=/`,
    });
  }
  if (req.method === "POST" && path === "/dev/end-sessions") {
    sessions.clear();
    return answer(res, 200, null);
  }
  if (req.method === "POST" && path === "/dev/link") return answer(res, 200, { url: makeLink() });
  const session = sessionOf(req);
  if (path === "/session" && req.method === "GET")
    return session ? answer(res, 200, shown(session)) : refuse(res, 401, "refused", "sign in first");
  if (path === "/sign-out" && req.method === "POST") {
    for (const [id, s] of sessions) if (s === session) sessions.delete(id);
    res.writeHead(204, { "set-cookie": "cenote=; Max-Age=0; Path=/" });
    return res.end();
  }
  if (!path.startsWith("/v1/")) return refuse(res, 404, "not-found", `there is no '${path}'`);
  if (!session) return refuse(res, 401, "refused", "sign in first");
  if (req.headers["x-cenote-csrf"] !== session.csrf)
    return refuse(res, 403, "refused", "the token of the session is missing");
  const action = path.slice(4);
  const declared = openapi.paths[path]?.post;
  const role = declared?.["x-cenote-role"] ?? own[action]?.[0];
  if (!role) return refuse(res, 404, "not-found", `there is no action '${action}'`);
  if (ORDER[session.role] < ORDER[role])
    return refuse(res, 422, "refused", `'${action}' is for ${role}s; '${session.user}' is a ${session.role}`);
  const body = await bodyOf(req);
  if (slow) await new Promise((go) => setTimeout(go, slow));
  if (own[action] && !declared)
    return answer(res, 200, await own[action][1](JSON.parse(body.toString() || "{}")));
  const headers = { "content-type": "application/json", "content-length": body.length, host: "localhost" };
  if (req.headers["last-event-id"]) headers["last-event-id"] = req.headers["last-event-id"];
  const up = request({ socketPath: socket, path, method: "POST", headers }, (down) => {
    res.writeHead(down.statusCode, {
      "content-type": down.headers["content-type"] ?? "application/json",
      "cache-control": "no-store",
    });
    down.pipe(res);
    down.on("error", () => res.destroy());
    down.on("aborted", () => res.destroy());
  });
  up.on("error", () => (res.headersSent ? res.destroy() : res.socket?.destroy()));
  res.on("close", () => up.destroy());
  up.end(body);
}

const server = createServer((req, res) => {
  handle(req, res).catch((error) => refuse(res, 500, "failed", String(error)));
});
server.keepAliveTimeout = 60000;
server.listen(port, "127.0.0.1", () => {
  console.log(makeLink());
});
