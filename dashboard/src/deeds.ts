// Everything that the page can have done: the request, and the command line that does the same. One list, so that
// what is shown is what happens.
import type { Action, RequestOf, Schemas } from "./api/client";
import type { Role } from "./api/roles";
import { commandLine } from "./format";

type DashboardRole = Schemas["DashboardRole"];

export interface Deed {
  action: Action;
  request: unknown;
  /** Lines for a shell. */
  line: string;
}
type Pairs = [string, string][];

/** A request with the command for the pool's history. */
function kept<A extends Action>(action: A, request: RequestOf<A>, words: string[]): Deed {
  const line = commandLine(words);
  return { action, request: { ...(request as object), command: line }, line: `cenote ${line}` };
}
function plain<A extends Action>(action: A, request: RequestOf<A>, words: string[]): Deed {
  return { action, request, line: `cenote ${commandLine(words)}` };
}
const options = (flag: string, pairs: Pairs) => pairs.flatMap(([name, value]) => [flag, `${name}=${value}`]);
const bytesOf = (text: string) => [...new TextEncoder().encode(text)];

// Pools

export type Layout = "stripe" | "mirror" | "mirrors" | "raidz1" | "raidz2" | "raidz3";
export type VdevClass = "data" | "log" | "special" | "dedup" | "spare" | "cache";

export function newVdevs(layout: Layout, devices: string[], kind: VdevClass = "data") {
  const words: string[] = [];
  const vdevs: Schemas["NewVdev"][] = [];
  if (kind === "spare" || kind === "cache") {
    return {
      words: [kind, ...devices],
      devices: kind === "spare" ? { spares: devices } : { cache: devices },
    };
  }
  const of = kind === "data" ? {} : { class: kind as Schemas["NewClass"] };
  if (kind !== "data") words.push(kind);
  const add = (shape: Schemas["NewVdev"]["layout"], some: string[], word?: string) => {
    vdevs.push({ layout: shape, devices: some, ...of } as Schemas["NewVdev"]);
    if (word) words.push(word);
    words.push(...some);
  };
  if (layout === "stripe") for (const device of devices) add("single", [device]);
  else if (layout === "mirror") add("mirror", devices, "mirror");
  else if (layout === "mirrors") {
    for (let i = 0; i < devices.length; i += 2) add("mirror", devices.slice(i, i + 2), "mirror");
  } else add({ raidz: { nparity: Number(layout.slice(5)) } }, devices, layout);
  return { words, devices: { vdevs } };
}

export function createPool(given: {
  name: string;
  layout: Layout;
  devices: string[];
  spares: string[];
  properties: Pairs;
  rootProperties: Pairs;
  passphrase?: string;
  altroot?: string;
  force: boolean;
  dryRun?: boolean;
}): Deed {
  const made = newVdevs(given.layout, given.devices);
  const words = [
    "zpool",
    "create",
    ...(given.dryRun ? ["-n"] : []),
    ...(given.force ? ["-f"] : []),
    ...(given.altroot ? ["-R", given.altroot] : []),
    ...options("-o", given.properties),
    ...options("-O", given.rootProperties),
    given.name || "POOL",
    ...made.words,
    ...(given.spares.length ? ["spare", ...given.spares] : []),
  ];
  return kept(
    "pool-create",
    {
      name: given.name,
      devices: { ...made.devices, ...(given.spares.length ? { spares: given.spares } : {}) },
      properties: given.properties,
      root_properties: given.rootProperties,
      force: given.force,
      dry_run: given.dryRun ?? false,
      ...(given.passphrase ? { key: bytesOf(given.passphrase) } : {}),
      ...(given.altroot ? { altroot: given.altroot } : {}),
    },
    words,
  );
}

export function importPool(given: {
  pool: string;
  newName?: string;
  search: string[];
  force: boolean;
  readOnly: boolean;
  loadKeys: boolean;
  destroyed: boolean;
  altroot?: string;
}): Deed {
  const properties: Pairs = given.readOnly ? [["readonly", "on"]] : [];
  return kept(
    "pool-import",
    {
      pool: given.pool,
      search: given.search,
      force: given.force,
      load_keys: given.loadKeys,
      destroyed: given.destroyed,
      properties,
      ...(given.newName ? { new_name: given.newName } : {}),
      ...(given.altroot ? { altroot: given.altroot } : {}),
    },
    [
      "zpool",
      "import",
      ...(given.destroyed ? ["-D"] : []),
      ...(given.force ? ["-f"] : []),
      ...(given.loadKeys ? ["-l"] : []),
      ...(given.altroot ? ["-R", given.altroot] : []),
      ...given.search.flatMap((d) => ["-d", d]),
      ...options("-o", properties),
      given.pool,
      ...(given.newName ? [given.newName] : []),
    ],
  );
}
export const exportPool = (pool: string, force: boolean) =>
  kept("pool-export", { pools: [pool], force }, ["zpool", "export", ...(force ? ["-f"] : []), pool]);
export const destroyPool = (pool: string, force: boolean) =>
  kept("pool-destroy", { pool, force }, ["zpool", "destroy", ...(force ? ["-f"] : []), pool]);
export const setPool = (pool: string, property: string, value: string) =>
  kept("pool-set", { pool, property, value }, ["zpool", "set", `${property}=${value}`, pool]);
export const checkpoint = (pool: string, discard: boolean) =>
  kept("pool-checkpoint", { pool, discard }, ["zpool", "checkpoint", ...(discard ? ["-d"] : []), pool]);
export const upgradePool = (pool: string) =>
  kept("pool-upgrade", { pools: [pool] }, ["zpool", "upgrade", pool]);
export const reopenPool = (pool: string) =>
  plain("pool-reopen", { pools: [pool] }, ["zpool", "reopen", pool]);
export const syncPool = (pool: string) => plain("pool-sync", { pools: [pool] }, ["zpool", "sync", pool]);

export const clear = (pool: string, device?: string) =>
  kept("pool-clear", { pool, ...(device ? { device } : {}) }, [
    "zpool",
    "clear",
    pool,
    ...(device ? [device] : []),
  ]);
export type ScanDeed = "scrub" | "scrub-new" | "scrub-errors" | "pause" | "stop" | "resilver";
export function scan(pool: string, what: ScanDeed): Deed {
  const words = {
    scrub: ["scrub"],
    "scrub-new": ["scrub", "-C"],
    "scrub-errors": ["scrub", "-e"],
    pause: ["scrub", "-p"],
    stop: ["scrub", "-s"],
    resilver: ["resilver"],
  }[what];
  const action = what === "scrub-new" || what === "scrub-errors" ? "scrub" : what;
  return kept(
    "pool-scan",
    {
      pool,
      action,
      ...(what === "scrub-new" ? { after_last: true } : {}),
      ...(what === "scrub-errors" ? { errors_only: true } : {}),
    },
    ["zpool", ...words, pool],
  );
}
export const scrubSchedule = (pool: string, schedule: string) =>
  plain("scrub-schedule-set", { pool, schedule }, ["scrub-schedule", pool, schedule]);
export function sweep(
  pool: string,
  work: "trim" | "initialize",
  action: "start" | "suspend" | "cancel",
  devices: string[] = [],
): Deed {
  const flags = { start: [], suspend: ["-s"], cancel: ["-c"] }[action];
  return kept("device-sweep", { pool, work, action, devices }, ["zpool", work, ...flags, pool, ...devices]);
}

// Devices

export const online = (pool: string, device: string, expand = false) =>
  kept("device-online", { pool, devices: [device], expand }, [
    "zpool",
    "online",
    ...(expand ? ["-e"] : []),
    pool,
    device,
  ]);
export const offline = (pool: string, device: string, temporary: boolean) =>
  kept("device-offline", { pool, devices: [device], temporary }, [
    "zpool",
    "offline",
    ...(temporary ? ["-t"] : []),
    pool,
    device,
  ]);
export const detach = (pool: string, device: string) =>
  kept("device-detach", { pool, device }, ["zpool", "detach", pool, device]);
export const removeDevice = (pool: string, device: string) =>
  kept("device-remove", { pool, devices: [device] }, ["zpool", "remove", pool, device]);
export const attach = (pool: string, device: string, fresh: string, replace: boolean, force: boolean) =>
  kept("device-attach", { pool, device, replace, force, ...(fresh ? { new_device: fresh } : {}) }, [
    "zpool",
    replace ? "replace" : "attach",
    ...(force ? ["-f"] : []),
    pool,
    device,
    ...(fresh ? [fresh] : []),
  ]);
export function add(pool: string, layout: Layout, kind: VdevClass, devices: string[], force: boolean): Deed {
  const made = newVdevs(layout, devices, kind);
  return kept(
    "pool-add",
    {
      pool,
      devices: made.devices,
      force,
      ...(force ? { allow_in_use: true, allow_replication_mismatch: true } : {}),
    },
    ["zpool", "add", ...(force ? ["-f"] : []), pool, ...made.words],
  );
}

// Datasets

export function createDataset(given: {
  name: string;
  volumeBytes?: number | undefined;
  volumeText?: string;
  sparse: boolean;
  parents: boolean;
  properties: Pairs;
  passphrase?: string;
}): Deed {
  const volume = given.volumeBytes !== undefined;
  return kept(
    "dataset-create",
    {
      name: given.name,
      parents: given.parents,
      properties: given.properties,
      ...(volume ? { volume_bytes: given.volumeBytes ?? 0, sparse: given.sparse } : {}),
      ...(given.passphrase ? { key: bytesOf(given.passphrase) } : {}),
    },
    [
      "zfs",
      "create",
      ...(given.parents ? ["-p"] : []),
      ...(volume && given.sparse ? ["-s"] : []),
      ...(volume ? ["-V", given.volumeText || String(given.volumeBytes)] : []),
      ...options("-o", given.properties),
      given.name || "DATASET",
    ],
  );
}
export function destroyDataset(
  name: string,
  how: { recursive?: boolean; clones?: boolean; force?: boolean; defer?: boolean; dryRun?: boolean },
): Deed {
  const flags = [
    how.recursive && !how.clones ? "-r" : "",
    how.clones ? "-R" : "",
    how.force ? "-f" : "",
    how.defer ? "-d" : "",
    how.dryRun ? "-nv" : "",
  ].filter(Boolean);
  return kept(
    "dataset-destroy",
    {
      name,
      recursive: how.recursive || how.clones || false,
      clones: how.clones ?? false,
      force: how.force ?? false,
      defer: how.defer ?? false,
      dry_run: how.dryRun ?? false,
    },
    ["zfs", "destroy", ...flags, name],
  );
}
export const renameDataset = (
  from: string,
  target: string,
  how: { parents?: boolean; recursive?: boolean; force?: boolean },
) =>
  kept(
    "dataset-rename",
    {
      from,
      to: target,
      parents: how.parents ?? false,
      recursive: how.recursive ?? false,
      force: how.force ?? false,
    },
    [
      "zfs",
      "rename",
      ...(how.parents ? ["-p"] : []),
      ...(how.recursive ? ["-r"] : []),
      ...(how.force ? ["-f"] : []),
      from,
      target || "NAME",
    ],
  );
export const promote = (dataset: string) => kept("dataset-promote", { dataset }, ["zfs", "promote", dataset]);
export const setProperty = (dataset: string, property: string, value: string) =>
  kept("property-set", { datasets: [dataset], properties: [[property, value]] }, [
    "zfs",
    "set",
    `${property}=${value}`,
    dataset,
  ]);
export const inherit = (
  dataset: string,
  property: string,
  how: { recursive?: boolean; received?: boolean },
) =>
  kept(
    "property-inherit",
    { property, datasets: [dataset], recursive: how.recursive ?? false, received: how.received ?? false },
    ["zfs", "inherit", ...(how.recursive ? ["-r"] : []), ...(how.received ? ["-S"] : []), property, dataset],
  );
export const snapshot = (names: string[], recursive: boolean) =>
  kept("snapshot-create", { names, recursive }, ["zfs", "snapshot", ...(recursive ? ["-r"] : []), ...names]);
export const rollback = (name: string, how: { later?: boolean; clones?: boolean; force?: boolean }) =>
  kept(
    "dataset-rollback",
    {
      snapshot: name,
      destroy_later: how.later || how.clones || false,
      destroy_clones: how.clones ?? false,
      force: how.force ?? false,
    },
    [
      "zfs",
      "rollback",
      ...(how.later && !how.clones ? ["-r"] : []),
      ...(how.clones ? ["-R"] : []),
      ...(how.force ? ["-f"] : []),
      name,
    ],
  );
export const clone = (name: string, target: string, parents: boolean) =>
  kept("dataset-clone", { snapshot: name, target, parents }, [
    "zfs",
    "clone",
    ...(parents ? ["-p"] : []),
    name,
    target || "NAME",
  ]);
export const hold = (tag: string, snapshots: string[], recursive: boolean, release: boolean) =>
  kept("snapshot-hold", { tag, snapshots, recursive, release }, [
    "zfs",
    release ? "release" : "hold",
    ...(recursive ? ["-r"] : []),
    tag || "TAG",
    ...snapshots,
  ]);
export const bookmark = (source: string, name: string) =>
  kept("bookmark-create", { source, bookmark: name }, ["zfs", "bookmark", source, name || "BOOKMARK"]);
export const loadKey = (dataset: string, passphrase: string) =>
  plain("key-load", { dataset, ...(passphrase ? { key: bytesOf(passphrase) } : {}) }, [
    "zfs",
    "load-key",
    dataset,
  ]);
export const unloadKey = (dataset: string) =>
  plain("key-unload", { dataset }, ["zfs", "unload-key", dataset]);
export const mount = (dataset: string) => plain("mount", { dataset }, ["zfs", "mount", dataset]);
export const unmount = (dataset: string, force: boolean) =>
  plain("unmount", { target: dataset, force }, ["zfs", "unmount", ...(force ? ["-f"] : []), dataset]);
export const share = (dataset: string) => plain("share", { dataset }, ["zfs", "share", dataset]);
export const unshare = (dataset: string) =>
  plain("unshare", { target: dataset }, ["zfs", "unshare", dataset]);
export function snapshotSchedule(dataset: string, value: string): Deed {
  const property = "org.cenote:snapshots";
  const words = ["snapshot-schedule", dataset];
  if (value === "off") words.push("off");
  else
    for (const part of value.split(",")) {
      const [kind = "", keep] = part.split("=");
      if (kind === "recursive") words.push("-r");
      else words.push(`--${kind}`, keep ?? "");
    }
  const line = commandLine(words);
  return {
    action: "property-set",
    request: {
      datasets: [dataset],
      properties: [[property, value]],
      command: `zfs set ${property}=${value} ${dataset}`,
    },
    line: `cenote ${line}`,
  };
}
export const reshape = (
  volume: string,
  action: "start" | "pause" | "resume" | "cancel",
  bytes?: number,
  text?: string,
): Deed => {
  const flag = { start: [], pause: ["--pause"], resume: ["--resume"], cancel: ["--cancel"] }[action];
  const words =
    action === "start"
      ? ["zfs", "set", `volblocksize=${text ?? bytes}`, volume]
      : ["reshape", ...flag, volume];
  return kept("volume-reshape", { volume, action, ...(bytes ? { volblocksize: bytes } : {}) }, words);
};

/** `at` is where the filesystem is mounted: the command line copies out of its hidden folder. */
export function restoreFile(
  name: string,
  path: string,
  target: string,
  overwrite: boolean,
  at: string,
): Deed {
  const tag = name.slice(name.indexOf("@") + 1);
  const clean = (p: string) => p.replace(/^\/+/, "");
  const words = [
    "cp",
    "-a",
    ...(overwrite ? [] : ["-n"]),
    `${at}/.zfs/snapshot/${tag}/${clean(path)}`,
    `${at}/${clean(target || path)}`,
  ];
  return {
    action: "file-restore",
    request: { snapshot: name, path, ...(target && target !== path ? { to: target } : {}), overwrite },
    line: commandLine(words),
  };
}

// The daemon

export const setTunable = (name: string, value: string | null, save: boolean) =>
  plain(
    "tunable-set",
    { settings: [[name, value]], save },
    value === null
      ? ["tunable", "reset", ...(save ? ["--save"] : []), name]
      : ["tunable", "set", ...(save ? ["--save"] : []), `${name}=${value}`],
  );
export function addHook(name: string, events: string[], kind: "command" | "webhook", text: string): Deed {
  return plain(
    "hook-add",
    {
      hook: {
        name,
        events,
        action: (kind === "command" ? { command: text } : { webhook: text }) as Schemas["HookAction"],
      },
    },
    ["hooks", "add", ...events.flatMap((e) => ["-e", e]), `--${kind}`, text, name || "NAME"],
  );
}
export const removeHook = (name: string) => plain("hook-remove", { name }, ["hooks", "remove", name]);
export const testHook = (name: string, dryRun: boolean) =>
  plain("hook-test", { name, dry_run: dryRun }, ["hooks", "test", ...(dryRun ? ["--dry-run"] : []), name]);
export const clearEvents = () => plain("events-clear", {}, ["zpool", "events", "-c"]);
// Passwords are asked for by the command line, and not part of it.
export const setUser = (name: string, role: Role, password: string) =>
  plain("dashboard-user-set", { name, role, ...(password ? { password } : {}) }, [
    "dashboard",
    "user",
    "set",
    name || "NAME",
    "--role",
    role,
  ]);
export const removeUser = (name: string) =>
  plain("dashboard-user-remove", { name }, ["dashboard", "user", "remove", name]);
export const createToken = (name: string, role: DashboardRole, days: number | undefined) =>
  plain("dashboard-token-create", { name, role, ...(days ? { days } : {}) }, [
    "dashboard",
    "token",
    "create",
    name || "NAME",
    "--role",
    role,
    ...(days ? ["--days", String(days)] : []),
  ]);
export const removeToken = (name: string) =>
  plain("dashboard-token-remove", { name }, ["dashboard", "token", "remove", name]);
