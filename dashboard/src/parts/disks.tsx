// Choosing disks: those of the machine, with what lies on them, or paths that are typed.
import type { Schemas } from "../api/client";
import { useState } from "preact/hooks";
import { size } from "../format";
import { useQuery } from "../query";
import { S } from "../strings";
import { Badge, Button, Fault, TextField } from "./ui";

type DiskEntry = Schemas["DiskEntry"];

export interface Picked {
  path: string;
  size?: number | undefined;
  inUse?: string | null | undefined;
  rotational?: boolean | undefined;
}
export const pathOf = (disk: DiskEntry) =>
  disk.by_id ? (disk.by_id.startsWith("/") ? disk.by_id : `/dev/disk/by-id/${disk.by_id}`) : disk.path;

export function DiskChoice({
  picked,
  set,
  one,
  least = 0,
}: {
  picked: Picked[];
  set: (picked: Picked[]) => void;
  /** Only one can be chosen. */
  one?: boolean;
  /** Bytes that a disk needs. */
  least?: number;
}) {
  const disks = useQuery("disk-list", { smart: true });
  const [typed, setTyped] = useState("");
  const toggle = (disk: Picked) => {
    const has = picked.some((p) => p.path === disk.path);
    if (one) set(has ? [] : [disk]);
    else set(has ? picked.filter((p) => p.path !== disk.path) : [...picked, disk]);
  };
  const addTyped = () => {
    const paths = typed.split(/[\s,]+/).filter((p) => p.length > 0 && !picked.some((d) => d.path === p));
    if (!paths.length) return;
    const fresh = paths.map((path) => ({ path }));
    set(one ? fresh.slice(0, 1) : [...picked, ...fresh]);
    setTyped("");
  };
  const missing = disks.error && disks.error.kind !== "connection";
  const listed = disks.data ?? [];
  const own = picked.filter((p) => !listed.some((d) => pathOf(d) === p.path));
  return (
    <div class="stack">
      {listed.length ? (
        <ul class="disks" tabIndex={0} aria-label={S.disks.list}>
          {listed.map((d) => {
            const path = pathOf(d);
            const small = least > 0 && d.size < least;
            const disk: Picked = { path, size: d.size, inUse: d.in_use, rotational: d.rotational };
            return (
              <li key={path} class={d.in_use ? "disk-row used" : "disk-row"}>
                <label>
                  <input
                    type={one ? "radio" : "checkbox"}
                    name="disk"
                    checked={picked.some((p) => p.path === path)}
                    onChange={() => toggle(disk)}
                  />
                  <span class="grow">
                    <strong>{d.model || d.path}</strong> <span class="num">{size(d.size)}</span>{" "}
                    <span class="muted small">
                      {S.disks.kind(d.rotational, d.removable)} · {d.path}
                      {d.serial ? ` · ${d.serial}` : ""}
                    </span>
                    <span class="disk-badges">
                      {d.in_use ? (
                        <Badge tone="warn">{S.disks.inUse(d.in_use)}</Badge>
                      ) : (
                        <Badge tone="good">{S.disks.empty}</Badge>
                      )}
                      {d.smart?.healthy === false ? <Badge tone="bad">{S.disks.failing}</Badge> : null}
                      {d.smart?.temperature ? (
                        <span class="muted small">{S.disks.temperature(d.smart.temperature)}</span>
                      ) : null}
                      {d.smart?.hours ? (
                        <span class="muted small">{S.disks.hours(d.smart.hours)}</span>
                      ) : null}
                      {small ? <Badge tone="bad">{S.disks.tooSmall}</Badge> : null}
                    </span>
                  </span>
                </label>
              </li>
            );
          })}
        </ul>
      ) : null}
      {missing ? <p class="hint">{S.disks.notListed}</p> : null}
      {disks.error?.kind === "connection" ? <Fault error={disks.error} retry={disks.reload} /> : null}
      {own.length ? (
        <ul class="disks" tabIndex={0} aria-label={S.disks.list}>
          {own.map((p) => (
            <li class="disk-row" key={p.path}>
              <span class="grow mono">{p.path}</span>
              <Button kind="quiet" onClick={() => toggle(p)} label={S.disks.takeOut(p.path)} icon="bad" />
            </li>
          ))}
        </ul>
      ) : null}
      <div class="add-path">
        <TextField
          label={one ? S.disks.path : S.disks.paths}
          value={typed}
          set={setTyped}
          hint={S.disks.pathHint}
          placeholder="/dev/disk/by-id/…"
        />
        <Button onClick={addTyped} off={typed.trim() ? undefined : S.disks.typeFirst}>
          {one ? S.disks.use : S.disks.add}
        </Button>
      </div>
    </div>
  );
}
