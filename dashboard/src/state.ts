// What the page knows: the session, the connection, and the pools as the feed of changes tells of them. Pages
// read these signals; only this module writes them.
import { signal } from "@preact/signals";
import {
  ApiError,
  call,
  currentSession,
  onEnded,
  parse,
  setCsrf,
  textLines,
  type Schemas,
  type Session,
} from "./api/client";
import { ROLES, type Role } from "./api/roles";

export type DatasetKind = Schemas["DatasetKind"];
export interface Dataset {
  name: string;
  guid: string;
  kind: DatasetKind;
  volume_bytes?: number | null;
}
export interface Pool {
  name: string;
  guid: string;
  state: string;
  suspended: boolean;
  readOnly: boolean;
  error?: string | null;
  datasets: Map<string, Dataset>;
  jobs: Schemas["JobFigures"][];
  allocated?: number;
  free?: number;
  freeing?: number;
}
export type Change = Schemas["Change"] & { pool?: string };
export type PoolEvent = Schemas["Event"];
export type Connection = { at: "connecting" } | { at: "live" } | { at: "lost"; next: number };

/** Not known yet; null where no one has signed in; or who has. */
export const session = signal<Session | null | undefined>(undefined);
/** The session ended while a page was open: the page stays, and a form comes over it. */
export const expired = signal(false);
export const connection = signal<Connection>({ at: "connecting" });
export const pools = signal<ReadonlyMap<string, Pool>>(new Map());
export const arrived = signal(false);
export const events = signal<readonly PoolEvent[]>([]);

/** What a page wants to hear of. `what` is "snapshot" after a new beginning, else the kind of a change. */
export interface News {
  what: string;
  pool?: string | undefined;
  name?: string | undefined;
}
type Listener = (news: News) => void;
const listeners = new Set<Listener>();
export function listen(listener: Listener): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}
/** Something was done by this page: what it shows may be old. */
export function done() {
  tell({ what: "deed" });
}
function tell(news: News) {
  for (const listener of listeners) listener(news);
}

const RANK: Record<Role, number> = { viewer: 0, operator: 1, admin: 2 };
export function roleFor(action: string): Role {
  return ROLES[action] ?? "admin";
}
export function may(action: string): boolean {
  const role = session.value?.role;
  return role !== undefined && RANK[role] >= RANK[roleFor(action)];
}

export function setSession(next: Session | null) {
  setCsrf(next?.csrf ?? "");
  session.value = next;
  expired.value = false;
  if (next) begin();
  else stop();
}
onEnded(() => {
  stop();
  if (session.value) expired.value = true;
  else session.value = null;
});

export async function whoIsIt() {
  try {
    setSession(await currentSession());
  } catch (error) {
    if (error instanceof ApiError && error.status === 0) {
      connection.value = { at: "lost", next: Date.now() + 2000 };
      setTimeout(whoIsIt, 2000);
    } else session.value = null;
  }
}

let following: AbortController | undefined;
let lastId = "";
let fails = 0;
let timer: ReturnType<typeof setTimeout> | undefined;

function stop() {
  following?.abort();
  following = undefined;
  clearTimeout(timer);
}

/** Begins to follow, or begins anew at once. */
export function begin() {
  stop();
  following = new AbortController();
  void follow(following);
}

async function follow(mine: AbortController) {
  try {
    const response = await call("/v1/follow", {
      method: "POST",
      body: "{}",
      signal: mine.signal,
      headers: { "content-type": "application/json", ...(lastId ? { "last-event-id": lastId } : {}) },
    });
    fails = 0;
    const again = connection.value.at === "lost";
    connection.value = { at: "live" };
    if (again) tell({ what: "reconnected" });
    let id = "";
    let event = "";
    let data = "";
    let watchdog: ReturnType<typeof setTimeout> | undefined;
    const alive = () => {
      clearTimeout(watchdog);
      watchdog = setTimeout(() => lost(mine), 45_000);
    };
    alive();
    try {
      for await (const line of textLines(response)) {
        alive();
        if (line.startsWith("data:")) data += (data && "\n") + line.slice(5).trimStart();
        else if (line.startsWith("event:")) event = line.slice(6).trim();
        else if (line.startsWith("id:")) id = line.slice(3).trim();
        else if (line === "" || line === "\r") {
          if (data) take(event, parse(data));
          if (id) lastId = id;
          id = event = data = "";
        }
      }
    } finally {
      clearTimeout(watchdog);
    }
    lost(mine);
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) return;
    lost(mine);
  }
}

function lost(mine: AbortController) {
  if (following !== mine) return;
  mine.abort();
  following = undefined;
  fails += 1;
  const wait = Math.min(10_000, 400 * 2 ** Math.min(fails, 6)) * (0.75 + Math.random() / 2);
  connection.value = { at: "lost", next: Date.now() + wait };
  timer = setTimeout(begin, wait);
}

function take(event: string, data: unknown) {
  if (event === "snapshot") {
    const next = new Map<string, Pool>();
    for (const pool of (data as Schemas["Snapshot"]).pools ?? [])
      next.set(pool.pool, {
        name: pool.pool,
        guid: pool.pool_guid,
        state: pool.state,
        suspended: pool.suspended,
        readOnly: pool.read_only,
        error: pool.error ?? null,
        datasets: new Map((pool.datasets ?? []).map((d) => [d.name, d])),
        jobs: pool.jobs ?? [],
      });
    pools.value = next;
    arrived.value = true;
    tell({ what: "snapshot" });
  } else if (event === "change") {
    const change = data as Schemas["Change"] & Record<string, unknown> & { pool: string; kind: string };
    apply(change);
    tell({
      what: change.kind,
      pool: change.pool,
      name: (change["name"] ?? change["from"]) as string | undefined,
    });
  } else if (event === "figures") {
    const next = new Map(pools.value);
    for (const figures of data as Schemas["Figures"][]) {
      const pool = next.get(figures.pool);
      if (pool)
        next.set(figures.pool, {
          ...pool,
          allocated: figures.allocated_bytes,
          free: figures.free_bytes,
          freeing: figures.freeing_bytes,
          jobs: figures.jobs ?? [],
        });
    }
    pools.value = next;
  } else if (event === "event") {
    const seen = data as PoolEvent;
    const rest = events.value.filter((e) => e.eid !== seen.eid);
    events.value = [...rest.slice(-999), seen];
    tell({ what: "event" });
  } else if (event === "missed") {
    lastId = "";
  }
}

function apply(change: Record<string, unknown> & { pool: string; kind: string }) {
  const all = new Map(pools.value);
  const text = (key: string) => String(change[key] ?? "");
  if (change.kind === "opened" && !all.has(change.pool)) {
    all.set(change.pool, {
      name: change.pool,
      guid: text("pool_guid"),
      state: "ONLINE",
      suspended: false,
      readOnly: false,
      datasets: new Map(),
      jobs: [],
    });
    pools.value = all;
    // What a pool that was opened holds is in a snapshot only.
    lastId = "";
    setTimeout(begin, 50);
    return;
  }
  if (change.kind === "closed") {
    all.delete(change.pool);
    pools.value = all;
    return;
  }
  const old = all.get(change.pool);
  if (!old) return;
  const pool = { ...old };
  const datasets = () => (pool.datasets = new Map(pool.datasets));
  if (change.kind === "created" && !/[@#]/.test(text("name"))) {
    const bytes = change["volume_bytes"] as number | null | undefined;
    datasets().set(text("name"), {
      name: text("name"),
      guid: text("guid"),
      kind: bytes === undefined || bytes === null ? "filesystem" : "volume",
      volume_bytes: bytes ?? null,
    });
  } else if (change.kind === "destroyed") {
    datasets().delete(text("name"));
  } else if (change.kind === "renamed" && !/[@#]/.test(text("from"))) {
    const map = datasets();
    for (const [name, dataset] of [...map])
      if (name === text("from") || name.startsWith(`${text("from")}/`)) {
        map.delete(name);
        const to = text("to") + name.slice(text("from").length);
        map.set(to, { ...dataset, name: to });
      }
  } else if (change.kind === "resized") {
    const known = pool.datasets.get(text("name"));
    if (known) datasets().set(known.name, { ...known, volume_bytes: Number(change["bytes"]) });
  } else if (change.kind === "suspended" || change.kind === "resumed") {
    pool.suspended = change.kind === "suspended";
  }
  all.set(change.pool, pool);
  pools.value = all;
}
