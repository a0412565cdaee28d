// Deeds of pools and their devices.
import type { Schemas } from "../api/client";
import { bytesOf, kept, options, plain, type Deed, type Pairs } from "./made";

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

/** A vdev of a layout: how it stands together, how many devices it has, and its word for `zpool create`. */
interface Vdev {
  layout: Schemas["NewVdev"]["layout"];
  devices: number;
  word: string;
}
/** A layout as the lab words it: `mirror 2 + mirror 2`, `raidz2 6`, `draid2:4d:11c:1s 11`, `4`. */
export function readLayout(text: string): Vdev[] | undefined {
  const list: Vdev[] = [];
  for (const part of text.split("+").map((p) => p.trim())) {
    const found = /^(?:(mirror|raidz[123]?|draid[123]?(?::\d+[dcs])*)\s+)?(\d{1,3})$/.exec(part);
    if (!found) return undefined;
    const word = found[1] ?? "";
    const devices = Number(found[2]);
    if (!devices) return undefined;
    if (!word) {
      for (let i = 0; i < devices; i += 1) list.push({ layout: "single", devices: 1, word: "" });
    } else if (word === "mirror") {
      if (devices < 2) return undefined;
      list.push({ layout: "mirror", devices, word });
    } else if (word.startsWith("raidz")) {
      const nparity = Number(word.slice(5) || 1);
      if (devices <= nparity) return undefined;
      list.push({ layout: { raidz: { nparity } }, devices, word: `raidz${nparity}` });
    } else {
      const nparity = Number(/^draid(\d?)/.exec(word)?.[1] || 1);
      const of = (unit: string) => {
        const n = new RegExp(`:(\\d+)${unit}`).exec(word)?.[1];
        return n === undefined ? undefined : Number(n);
      };
      const nspares = of("s") ?? 0;
      const ndata = of("d") ?? Math.min(8, devices - nspares - nparity);
      if (ndata < 1 || ndata + nparity + nspares > devices || (of("c") ?? devices) !== devices)
        return undefined;
      list.push({
        layout: { draid: { nparity, ndata, nspares } },
        devices,
        word: `draid${nparity}:${ndata}d:${devices}c:${nspares}s`,
      });
    }
  }
  return list;
}
/** How many devices a layout takes; nothing where it is none. */
export const devicesOf = (layout: string) => readLayout(layout)?.reduce((sum, vdev) => sum + vdev.devices, 0);

export type Use = "data" | "spare" | "special" | "dedup" | "log" | "cache";

export function createPool(given: {
  name: string;
  /** As the lab words it. */
  layout: string;
  devices: Record<Use, string[]>;
  properties: Pairs;
  rootProperties: Pairs;
  passphrase?: string;
  altroot?: string;
  force: boolean;
  dryRun?: boolean;
}): Deed {
  const vdevs: Schemas["NewVdev"][] = [];
  const vdevWords: string[] = [];
  const left = [...given.devices.data];
  for (const vdev of readLayout(given.layout) ?? []) {
    const some = left.splice(0, vdev.devices);
    vdevs.push({ layout: vdev.layout, devices: some } as Schemas["NewVdev"]);
    vdevWords.push(...(vdev.word ? [vdev.word] : []), ...some);
  }
  // What the pool is lost with is a mirror where there are devices for one.
  for (const use of ["special", "dedup", "log"] as const) {
    const some = given.devices[use];
    if (!some.length) continue;
    const mirror = some.length > 1;
    vdevs.push({ layout: mirror ? "mirror" : "single", class: use, devices: some } as Schemas["NewVdev"]);
    vdevWords.push(use, ...(mirror ? ["mirror"] : []), ...some);
  }
  const { spare, cache } = given.devices;
  return kept(
    "pool-create",
    {
      name: given.name,
      devices: { vdevs, spares: spare, cache },
      properties: given.properties,
      root_properties: given.rootProperties,
      force: given.force,
      dry_run: given.dryRun ?? false,
      ...(given.passphrase ? { key: bytesOf(given.passphrase) } : {}),
      ...(given.altroot ? { altroot: given.altroot } : {}),
    },
    [
      "zpool",
      "create",
      ...(given.dryRun ? ["-n"] : []),
      ...(given.force ? ["-f"] : []),
      ...(given.altroot ? ["-R", given.altroot] : []),
      ...options("-o", given.properties),
      ...options("-O", given.rootProperties),
      given.name || "POOL",
      ...vdevWords,
      ...(cache.length ? ["cache", ...cache] : []),
      ...(spare.length ? ["spare", ...spare] : []),
    ],
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
