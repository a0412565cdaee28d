// Deeds of datasets, snapshots and keys.
import type { Schemas } from "../api/client";
import { commandLine } from "../format";
import { bytesOf, kept, options, plain, type Deed, type Pairs } from "./made";

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
export const setProperties = (dataset: string, properties: Pairs) =>
  kept("property-set", { datasets: [dataset], properties }, [
    "zfs",
    "set",
    ...properties.map(([name, value]) => `${name}=${value}`),
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
  there: "refuse" | "keep" | "overwrite",
  at: string,
  after?: string | undefined,
): Deed {
  const tag = name.slice(name.indexOf("@") + 1);
  const clean = (p: string) => p.replace(/^\/+/, "");
  const words = [
    "cp",
    "-a",
    ...(there === "overwrite" ? [] : ["-n"]),
    "-T",
    `${at}/.zfs/snapshot/${tag}/${clean(path)}`,
    `${at}/${clean(target || path)}`,
  ];
  return {
    action: "file-restore",
    request: {
      snapshot: name,
      path,
      ...(target && target !== path ? { to: target } : {}),
      overwrite: there === "overwrite",
      ...(there === "keep" ? { keep: true } : {}),
      ...(after ? { after } : {}),
    },
    line: commandLine(words),
  };
}

/** The new key comes from what is typed, from where `keylocation` says, or from the parent. */
export function changeKey(
  dataset: string,
  how: { inherit?: boolean; properties: Pairs; passphrase?: string },
): Deed {
  return kept(
    "key-change",
    {
      dataset,
      inherit: how.inherit ?? false,
      properties: how.inherit ? [] : how.properties,
      ...(how.passphrase && !how.inherit ? { key: bytesOf(how.passphrase) } : {}),
    },
    ["zfs", "change-key", ...(how.inherit ? ["-i"] : options("-o", how.properties)), dataset],
  );
}

export type Grantees = Schemas["Grantees"];
export type Scope = "both" | "local" | "descendent";
function granteeWords(to: Grantees, scope: Scope, permissions: string[], all: boolean): string[] {
  const flags = scope === "local" ? ["-l"] : scope === "descendent" ? ["-d"] : [];
  const which = permissions.length || !all ? [permissions.join(",") || "PERMISSION"] : [];
  if (to === "everyone") return [...flags, "-e", ...which];
  if (to === "creator") return ["-c", ...which];
  if (typeof to !== "object") return which;
  if ("set" in to) return ["-s", to.set || "@SET", ...which];
  const [flag, names] =
    "users" in to ? ["-u", to.users] : "groups" in to ? ["-g", to.groups] : ["", to.named];
  return [...flags, ...(flag ? [flag] : []), names.join(",") || "NAME", ...which];
}
export const allow = (dataset: string, to: Grantees, scope: Scope, permissions: string[]) =>
  kept(
    "delegation-allow",
    { dataset, to, local: scope === "local", descendent: scope === "descendent", permissions },
    ["zfs", "allow", ...granteeWords(to, scope, permissions, false), dataset],
  );
export const unallow = (dataset: string, from: Grantees, scope: Scope, permissions: string[]) =>
  kept(
    "delegation-unallow",
    { dataset, from, local: scope === "local", descendent: scope === "descendent", permissions },
    ["zfs", "unallow", ...granteeWords(from, scope, permissions, true), dataset],
  );
export const abortReceive = (name: string) => kept("receive-abort", { name }, ["zfs", "receive", "-A", name]);

export interface Sent {
  snapshot: string;
  from?: string;
  between?: boolean;
  recursive?: boolean;
  raw?: boolean;
  properties?: boolean;
}
/** What `send` is asked for, and its words. Blocks travel as they are stored, as far as that is possible. */
export function send(given: Sent) {
  const several = given.recursive || given.between;
  return {
    request: {
      snapshot: given.snapshot,
      ...(given.from ? { from: given.from } : {}),
      all_between: Boolean(given.from && given.between),
      replicate: given.recursive ?? false,
      properties: given.properties ?? false,
      raw: given.raw ?? false,
      large_blocks: true,
      compressed: true,
      embedded: true,
    },
    words: [
      "zfs",
      "send",
      ...(given.raw ? ["-w"] : ["-Lce"]),
      ...(given.recursive ? ["-R"] : []),
      ...(given.properties && !given.recursive ? ["-p"] : []),
      ...(given.from ? [several && given.between ? "-I" : "-i", given.from] : []),
      given.snapshot,
    ],
  };
}
export interface Received {
  name: string;
  force?: boolean;
  resumable?: boolean;
  noMount?: boolean;
}
export const receive = (given: Received) => {
  const words = [
    "zfs",
    "receive",
    ...(given.force ? ["-F"] : []),
    ...(given.resumable ? ["-s"] : []),
    ...(given.noMount ? ["-u"] : []),
    given.name || "DATASET",
  ];
  return {
    request: {
      name: given.name,
      force: given.force ?? false,
      resumable: given.resumable ?? false,
      no_mount: given.noMount ?? false,
      verbose: true,
      command: commandLine(words),
    },
    words,
  };
};
