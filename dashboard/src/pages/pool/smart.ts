// How the disks of a pool are, as they say themselves (SMART): the machine's disks, found by the path of a device.
import type { Schemas } from "../../api/client";
import type { Vdev } from "../../health";
import { useQuery } from "../../query";

type DiskEntry = Schemas["DiskEntry"];
/** Disks by each of their paths, those of their partitions too. */
export type Health = ReadonlyMap<string, DiskEntry>;

let known: { data: unknown; map: Health } | undefined;
export function useHealth(): Health {
  const disks = useQuery("disk-list", { smart: true }, { every: 60_000 });
  if (known && known.data === disks.data) return known.map;
  const map = new Map<string, DiskEntry>();
  for (const disk of disks.data ?? []) {
    map.set(disk.path, disk);
    if (disk.by_id) map.set(disk.by_id, disk);
    for (const part of disk.partitions ?? []) {
      map.set(part.path, disk);
      const number = /(\d+)$/.exec(part.path)?.[1];
      if (disk.by_id && number) map.set(`${disk.by_id}-part${number}`, disk);
    }
  }
  known = { data: disks.data, map };
  return map;
}
export const diskOf = (health: Health, vdev: Vdev): DiskEntry | undefined =>
  (vdev.path ? health.get(vdev.path) : undefined) ?? health.get(vdev.name);
