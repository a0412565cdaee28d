// What needs attention in a pool, what goes on in it, and what mends it.
import type { Schemas } from "./api/client";
import * as deeds from "./deeds";
import type { Deed } from "./deeds";
import { base, size } from "./format";
import { S } from "./strings";

export type Status = Schemas["PoolStatus"];
export type Vdev = Schemas["VdevNode"];

export interface Mend {
  label: string;
  text: string;
  deed?: () => Deed;
  href?: { page: string; name: string; query?: Record<string, string> };
}
export interface Concern {
  key: string;
  tone: "bad" | "warn" | "info";
  pool: string;
  text: string;
  detail?: string;
  mends: Mend[];
}

export function leaves(vdev: Vdev): Vdev[] {
  return vdev.children.length ? vdev.children.flatMap(leaves) : [vdev];
}
/** How requests name a device. */
export const named = (vdev: Vdev) => vdev.path ?? (vdev.not_present ? String(vdev.guid) : vdev.name);
export const short = (vdev: Vdev) => base(vdev.path ?? vdev.name);
export const errorsOf = (vdev: Vdev) => vdev.read_errors + vdev.write_errors + vdev.checksum_errors;

const device = (pool: string, vdev: Vdev): Mend["href"] => ({
  page: "pool",
  name: pool,
  query: { tab: "devices", device: String(vdev.guid) },
});

export function concerns(status: Status, suspended: boolean, schedule?: Schemas["ScrubSchedule"]): Concern[] {
  const list: Concern[] = [];
  const pool = status.name;
  const add = (concern: Omit<Concern, "pool">) => list.push({ ...concern, pool });
  const T = S.concern;
  if (suspended || status.reason === "io-failure-wait")
    add({
      key: "suspended",
      tone: "bad",
      text: T.suspended,
      mends: [{ label: T.clear, text: T.clearSuspended, deed: () => deeds.clear(pool) }],
    });
  const scanning = status.scan?.state === "running" && status.scan.kind === "resilver";
  for (const leaf of leaves(status.vdevs)) {
    if (leaf.class === "spare" && leaf.state === "ONLINE") continue;
    const name = short(leaf);
    const key = String(leaf.guid);
    const replace: Mend = {
      label: T.replace,
      text: "",
      href: { ...device(pool, leaf)!, query: { tab: "devices", device: key, do: "replace" } },
    };
    const back: Mend = {
      label: T.online,
      text: T.onlineText(name),
      deed: () => deeds.online(pool, named(leaf)),
    };
    const clear: Mend = {
      label: T.clear,
      text: T.clearText(name),
      deed: () => deeds.clear(pool, named(leaf)),
    };
    const detail = S.aux[leaf.aux];
    if (leaf.state === "OFFLINE") add({ key, tone: "warn", text: T.offline(name), mends: [back, replace] });
    else if (leaf.state === "FAULTED")
      add({
        key,
        tone: "bad",
        text: T.faulted(name),
        ...(detail ? { detail } : {}),
        mends: [replace, clear],
      });
    else if (leaf.state === "REMOVED" || leaf.state === "UNAVAIL")
      add({
        key,
        tone: "bad",
        text: T.gone(name, leaf.state),
        ...(detail ? { detail } : {}),
        mends: [back, replace],
      });
    else if (errorsOf(leaf) > 0 || leaf.state === "DEGRADED")
      add({
        key,
        tone: "warn",
        text: T.errors(name, leaf.read_errors, leaf.write_errors, leaf.checksum_errors),
        mends: [clear, replace],
      });
  }
  if (status.error_count > 0)
    add({
      key: "files",
      tone: "bad",
      text: T.damaged(status.error_count),
      mends: [
        { label: T.showFiles, text: "", href: { page: "pool", name: pool, query: { tab: "damaged" } } },
        { label: T.scrub, text: S.pool.scrubText, deed: () => deeds.scan(pool, "scrub") },
      ],
    });
  if (status.reason === "awaiting-resilver" && !scanning)
    add({
      key: "resilver",
      tone: "warn",
      text: T.awaiting,
      mends: [{ label: T.resilver, text: S.pool.resilverText, deed: () => deeds.scan(pool, "resilver") }],
    });
  const space = status.vdevs.space;
  if (space && space.size > 0) {
    const part = space.allocated / space.size;
    if (part >= 0.8)
      add({
        key: "full",
        tone: part >= 0.9 ? "bad" : "warn",
        text: T.full(Math.round(part * 100), size(space.free)),
        mends: [
          {
            label: T.addDevices,
            text: "",
            href: { page: "pool", name: pool, query: { tab: "devices", do: "add" } },
          },
          { label: T.showDatasets, text: "", href: { page: "datasets", name: pool } },
        ],
      });
  }
  const last =
    schedule?.last ??
    (status.scan?.kind === "scrub" && status.scan.state === "finished" ? status.scan.end_time : 0);
  const running = status.scan?.state === "running";
  if (!running && schedule && !schedule.schedule && (!last || Date.now() / 1000 - last > 35 * 86_400))
    add({
      key: "scrub",
      tone: "info",
      text: last ? T.oldScrub : T.noScrub,
      mends: [
        { label: T.scrub, text: S.pool.scrubText, deed: () => deeds.scan(pool, "scrub") },
        { label: T.monthly, text: T.monthlyText, deed: () => deeds.scrubSchedule(pool, "monthly") },
      ],
    });
  const said = S.reason[status.reason];
  if (said && !list.some((c) => c.tone !== "info"))
    add({
      key: "reason",
      tone: status.reason === "resilvering" ? "warn" : "info",
      text: said,
      mends:
        status.reason === "features-disabled" || status.reason === "version-older"
          ? [{ label: T.upgrade, text: S.pool.upgradeText, deed: () => deeds.upgradePool(pool) }]
          : [],
    });
  return list;
}

export interface Job {
  key: string;
  pool: string;
  text: string;
  part: number;
  detail: string;
  paused: boolean;
  secondsLeft?: number | undefined;
  mends: Mend[];
}

export function jobs(status: Status): Job[] {
  const pool = status.name;
  const list: Job[] = [];
  const T = S.job;
  const name = (guid: string) => {
    const found = leaves(status.vdevs).find((v) => String(v.guid) === String(guid));
    return found ? short(found) : String(guid);
  };
  for (const scan of [status.scan, status.error_scrub]) {
    if (!scan || scan.state !== "running") continue;
    const paused = Boolean(scan.paused_time);
    const all = scan.to_examine || 1;
    const issued = scan.issued ?? scan.examined;
    const passed = Date.now() / 1000 - (scan.pass_start ?? scan.start_time) - (scan.pass_spent_paused ?? 0);
    const speed = scan.rate ?? (passed > 3 ? (scan.pass_issued ?? issued) / passed : 0);
    const resilver = scan.kind === "resilver";
    const pause: Mend = { label: T.pause, text: S.pool.pauseText, deed: () => deeds.scan(pool, "pause") };
    const resume: Mend = { label: T.resume, text: S.pool.resumeText, deed: () => deeds.scan(pool, "scrub") };
    const stop: Mend = { label: T.stop, text: S.pool.stopText, deed: () => deeds.scan(pool, "stop") };
    list.push({
      key: `${pool}-${scan.kind}`,
      pool,
      text: T.scan[scan.kind] ?? scan.kind,
      part: issued / all,
      detail: T.scanDetail(
        size(issued),
        size(scan.to_examine),
        size(scan.processed),
        scan.errors,
        paused ? 0 : speed,
      ),
      paused,
      secondsLeft: !paused && speed > 0 ? Math.max(0, all - issued) / speed : undefined,
      mends: resilver ? [] : [paused ? resume : pause, stop],
    });
  }
  for (const sweep of status.sweeps ?? []) {
    if (sweep.state !== "active" && sweep.state !== "suspended") continue;
    const paused = sweep.state === "suspended";
    const at = leaves(status.vdevs).find((v) => String(v.guid) === String(sweep.guid));
    const which = at ? [named(at)] : [];
    list.push({
      key: `${sweep.work}-${sweep.guid}`,
      pool,
      text: T.sweep(sweep.work, name(sweep.guid)),
      part: sweep.total_bytes ? sweep.done_bytes / sweep.total_bytes : 0,
      detail: T.of(size(sweep.done_bytes), size(sweep.total_bytes)),
      paused,
      mends: [
        paused
          ? { label: T.resume, text: T.resumeText, deed: () => deeds.sweep(pool, sweep.work, "start", which) }
          : {
              label: T.pause,
              text: T.pauseText,
              deed: () => deeds.sweep(pool, sweep.work, "suspend", which),
            },
        { label: T.stop, text: T.stopText, deed: () => deeds.sweep(pool, sweep.work, "cancel", which) },
      ],
    });
  }
  for (const r of status.reshapes ?? []) {
    if (r.state !== "active" && r.state !== "paused") continue;
    const paused = r.state === "paused";
    list.push({
      key: `reshape-${r.volume}`,
      pool,
      text: T.reshape(r.volume, size(r.old_volblocksize), size(r.new_volblocksize)),
      part: r.total_bytes ? r.done_bytes / r.total_bytes : 0,
      detail: r.error ?? T.of(size(r.done_bytes), size(r.total_bytes)),
      paused,
      secondsLeft: r.seconds_left ?? undefined,
      mends: [
        paused
          ? { label: T.resume, text: T.resumeText, deed: () => deeds.reshape(r.volume, "resume") }
          : { label: T.pause, text: T.pauseText, deed: () => deeds.reshape(r.volume, "pause") },
        { label: T.stop, text: T.reshapeStopText, deed: () => deeds.reshape(r.volume, "cancel") },
      ],
    });
  }
  if (status.removal?.state === "running")
    list.push({
      key: `${pool}-removal`,
      pool,
      text: T.removal,
      part: status.removal.copied / (status.removal.to_copy || 1),
      detail: T.of(size(status.removal.copied), size(status.removal.to_copy)),
      paused: false,
      mends: [],
    });
  if (status.expansion?.state === "running")
    list.push({
      key: `${pool}-expansion`,
      pool,
      text: T.expansion,
      part: status.expansion.reflowed / (status.expansion.to_reflow || 1),
      detail: T.of(size(status.expansion.reflowed), size(status.expansion.to_reflow)),
      paused: false,
      mends: [],
    });
  return list;
}
