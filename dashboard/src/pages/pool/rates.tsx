// How fast the devices of a pool are just now.
import { useEffect, useState } from "preact/hooks";
import { type Schemas } from "../../api/client";
import { useQuery } from "../../query";

export type Rates = Map<string, { read: number; write: number; latency: number; busy: number }>;

/** Rates of devices: the differences of two answers. */
export function useRates(pool: string): { rates: Rates; whole: { read: number; write: number } } {
  const io = useQuery("pool-iostat", { pools: [pool] }, { every: 2000 });
  const [before, setBefore] = useState<{ at: number; entry: Schemas["PoolIo"] } | undefined>();
  const [rates, setRates] = useState<{ rates: Rates; whole: { read: number; write: number } }>({
    rates: new Map(),
    whole: { read: 0, write: 0 },
  });
  useEffect(() => {
    const entry = io.data?.entries[0];
    if (!entry) return;
    if (before && io.at > before.at && Number(entry.age_ns) > Number(before.entry.age_ns)) {
      const seconds = (Number(entry.age_ns) - Number(before.entry.age_ns)) / 1e9;
      const next: Rates = new Map();
      const old = new Map(before.entry.counters.map((c) => [String(c.guid), c]));
      for (const now of entry.counters) {
        const was = old.get(String(now.guid));
        if (!was) continue;
        const ops = now.read.operations + now.write.operations - was.read.operations - was.write.operations;
        const ns =
          Number(now.read.total_ns) +
          Number(now.write.total_ns) -
          Number(was.read.total_ns) -
          Number(was.write.total_ns);
        next.set(String(now.guid), {
          read:
            (now.read.bytes + (now.scrub?.bytes ?? 0) - was.read.bytes - (was.scrub?.bytes ?? 0)) / seconds,
          write:
            (now.write.bytes +
              (now.sync_write?.bytes ?? 0) -
              was.write.bytes -
              (was.sync_write?.bytes ?? 0)) /
            seconds,
          latency: ops > 0 ? ns / ops : 0,
          busy: ops / seconds,
        });
      }
      const whole = { read: 0, write: 0 };
      for (const top of entry.vdevs.children) {
        const of = next.get(String(top.guid));
        whole.read += of?.read ?? 0;
        whole.write += of?.write ?? 0;
      }
      setRates({ rates: next, whole });
    }
    setBefore({ at: io.at, entry });
  }, [io.at]);
  return rates;
}
