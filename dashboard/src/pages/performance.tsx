// Live: rates and latencies of a pool, the cache in memory, transaction groups, and what other cache sizes would do.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Schemas } from "../api/client";
import { count, latency, percent, rate, size } from "../format";
import { Heat, Plot } from "../parts/plot";
import { Card, Empty, Facts, Fault, Shown } from "../parts/ui";
import { useQuery } from "../query";
import { route, to } from "../route";
import { arrived, pools } from "../state";
import { S } from "../strings";

const KEPT = 150;
interface Sample {
  at: number;
  read: number;
  write: number;
  reads: number;
  writes: number;
  readP50: number | null;
  readP99: number | null;
  writeP50: number | null;
  writeP99: number | null;
  heat: number[];
}
/** What was seen of each pool stays while the page is open. */
const seen = new Map<string, Sample[]>();

function quantile(buckets: number[], part: number): number | null {
  const all = buckets.reduce((a, b) => a + b, 0);
  if (all <= 0) return null;
  let left = all * part;
  for (let i = 0; i < buckets.length; i += 1) {
    left -= buckets[i] ?? 0;
    // The middle of the bucket, on the scale of powers.
    if (left <= 0) return 2 ** (i + 0.5);
  }
  return null;
}

interface Sums {
  read: number;
  write: number;
  reads: number;
  writes: number;
  readLatency: number[];
  writeLatency: number[];
}
function sums(entry: Schemas["PoolIo"]): Sums {
  const tops = new Set(entry.vdevs.children.map((v) => String(v.guid)));
  const total: Sums = { read: 0, write: 0, reads: 0, writes: 0, readLatency: [], writeLatency: [] };
  const addTo = (list: number[], more: number[] | undefined) =>
    more?.forEach((n, i) => {
      list[i] = (list[i] ?? 0) + Number(n);
    });
  for (const c of entry.counters) {
    if (!tops.has(String(c.guid))) continue;
    total.read += Number(c.read.bytes) + Number(c.scrub?.bytes ?? 0);
    total.write += Number(c.write.bytes) + Number(c.sync_write?.bytes ?? 0);
    total.reads += Number(c.read.operations) + Number(c.scrub?.operations ?? 0);
    total.writes += Number(c.write.operations) + Number(c.sync_write?.operations ?? 0);
    addTo(total.readLatency, c.read.total_latency);
    addTo(total.writeLatency, c.write.total_latency);
    addTo(total.writeLatency, c.sync_write?.total_latency);
  }
  return total;
}

function useSamples(pool: string) {
  const io = useQuery("pool-iostat", { pools: [pool] }, { every: 2000, not: !pool });
  const before = useRef<{ pool: string; age: number; sums: Sums } | undefined>(undefined);
  const [, again] = useState(0);
  useEffect(() => {
    const entry = io.data?.entries[0];
    if (!entry || entry.name !== pool) return;
    const age = Number(entry.age_ns) / 1e9;
    const now = sums(entry);
    const was = before.current;
    if (was && was.pool === pool && age > was.age) {
      const t = age - was.age;
      const less = (a: number[], b: number[]) => a.map((n, i) => Math.max(0, n - (b[i] ?? 0)));
      const reads = less(now.readLatency, was.sums.readLatency);
      const writes = less(now.writeLatency, was.sums.writeLatency);
      const list = seen.get(pool) ?? [];
      list.push({
        at: Date.now() / 1000,
        read: Math.max(0, now.read - was.sums.read) / t,
        write: Math.max(0, now.write - was.sums.write) / t,
        reads: Math.max(0, now.reads - was.sums.reads) / t,
        writes: Math.max(0, now.writes - was.sums.writes) / t,
        readP50: quantile(reads, 0.5),
        readP99: quantile(reads, 0.99),
        writeP50: quantile(writes, 0.5),
        writeP99: quantile(writes, 0.99),
        heat: reads.map((n, i) => n + (writes[i] ?? 0)),
      });
      if (list.length > KEPT) list.splice(0, list.length - KEPT);
      seen.set(pool, list);
      again((n) => n + 1);
    }
    before.current = { pool, age, sums: now };
  }, [io.at, pool]);
  return { list: seen.get(pool) ?? [], error: io.error, entry: io.data?.entries[0] };
}

interface Arc {
  at: number;
  hit: number | null;
  size: number;
  target: number;
  l2Hit: number | null;
  l2Read: number;
  l2Write: number;
  l2Size: number;
  l2Stored: number;
}
const arcSeen: Arc[] = [];
function useArc() {
  const counters = useQuery("counters", { groups: ["arcstats"] }, { every: 2000 });
  const before = useRef<{ time: number; counters: Record<string, number> } | undefined>(undefined);
  const [, again] = useState(0);
  useEffect(() => {
    const now = counters.data?.groups.find((g) => g.name === "arcstats")?.counters as
      Record<string, number> | undefined;
    if (!now) return;
    const was = before.current?.counters;
    const seconds = before.current ? Math.max(0.1, (Date.now() - before.current.time) / 1000) : 1;
    if (was) {
      const grown = (name: string) => Math.max(0, (now[name] ?? 0) - (was[name] ?? 0));
      const l2Asked = grown("l2_hits") + grown("l2_misses");
      const hits = (now["hits"] ?? 0) - (was["hits"] ?? 0);
      const misses = (now["misses"] ?? 0) - (was["misses"] ?? 0);
      arcSeen.push({
        at: Date.now() / 1000,
        hit: hits + misses > 0 ? hits / (hits + misses) : null,
        size: now["size"] ?? 0,
        target: now["c"] ?? now["c_max"] ?? 0,
        l2Hit: l2Asked > 0 ? grown("l2_hits") / l2Asked : null,
        l2Read: grown("l2_read_bytes") / seconds,
        l2Write: grown("l2_write_bytes") / seconds,
        l2Size: now["l2_size"] ?? 0,
        l2Stored: now["l2_asize"] ?? 0,
      });
      if (arcSeen.length > KEPT) arcSeen.splice(0, arcSeen.length - KEPT);
      again((n) => n + 1);
    }
    before.current = { time: Date.now(), counters: now };
  }, [counters.at]);
  return arcSeen;
}

export function Performance() {
  const names = [...pools.value.keys()].sort();
  const pool = route.value.name && names.includes(route.value.name) ? route.value.name : (names[0] ?? "");
  if (!pool)
    return (
      <>
        <h1>{S.nav.performance}</h1>
        <Card>
          <Empty>{arrived.value ? S.overview.noPools : S.loading}</Empty>
        </Card>
      </>
    );
  return (
    <>
      <div class="page-head">
        <h1>{S.nav.performance}</h1>
        <nav class="tabs plain" aria-label={S.perf.pool}>
          {names.map((n) => (
            <a key={n} href={to("performance", n)} aria-current={n === pool ? "page" : undefined}>
              {n}
            </a>
          ))}
        </nav>
      </div>
      <Live key={pool} pool={pool} />
      <WhatIf pool={pool} />
    </>
  );
}

function Live({ pool }: { pool: string }) {
  const { list, error, entry } = useSamples(pool);
  const arc = useArc();
  const length = list.length;
  const last = list[length - 1];
  const times = useMemo(() => list.map((s) => s.at), [length, last?.at]);
  const rates = useMemo(() => [times, list.map((s) => s.read), list.map((s) => s.write)], [times]);
  const ops = useMemo(() => [times, list.map((s) => s.reads), list.map((s) => s.writes)], [times]);
  const waits = useMemo(
    () => [
      times,
      list.map((s) => s.readP50),
      list.map((s) => s.readP99),
      list.map((s) => s.writeP50),
      list.map((s) => s.writeP99),
    ],
    [times],
  );
  const heat = useMemo(() => list.map((s) => s.heat), [times]);
  const newest = arc[arc.length - 1];
  const arcTimes = useMemo(() => arc.map((a) => a.at), [newest?.at]);
  const hits = useMemo(() => [arcTimes, arc.map((a) => a.hit)], [arcTimes]);
  const sizes = useMemo(() => [arcTimes, arc.map((a) => a.size), arc.map((a) => a.target)], [arcTimes]);
  if (error) return <Fault error={error} />;
  const lat = (v: number | null | undefined) => (v ? latency(v) : "–");
  const written = entry?.written;
  return (
    <>
      <div class="plots">
        <Card>
          <Plot
            label={S.perf.throughput}
            data={rates}
            lines={[
              { label: S.perf.read, colour: "--read", fill: true },
              { label: S.perf.written, colour: "--write", fill: true },
            ]}
            binary
            idle={2 ** 20}
            format={(v) => rate(v)}
            now={[rate(last?.read ?? 0), rate(last?.write ?? 0)]}
          />
        </Card>
        <Card>
          <Plot
            label={S.perf.operations}
            data={ops}
            lines={[
              { label: S.perf.reads, colour: "--read" },
              { label: S.perf.writes, colour: "--write" },
            ]}
            format={(v) => `${count(v)}/s`}
            now={[`${count(last?.reads)}/s`, `${count(last?.writes)}/s`]}
          />
        </Card>
        <Card>
          <Plot
            label={S.perf.latency}
            data={waits}
            lines={[
              { label: S.perf.readP50, colour: "--read" },
              { label: S.perf.readP99, colour: "--read", dash: [4, 3] },
              { label: S.perf.writeP50, colour: "--write" },
              { label: S.perf.writeP99, colour: "--write", dash: [4, 3] },
            ]}
            points
            idle={1e7}
            format={(v) => (v ? latency(v) : "0")}
            now={[lat(last?.readP50), lat(last?.readP99), lat(last?.writeP50), lat(last?.writeP99)]}
          />
        </Card>
        <Card>
          <Heat label={S.perf.heat} columns={heat} low={12} high={33} text={(b) => latency(2 ** b)} />
        </Card>
        <Card>
          <Plot
            label={S.perf.hits}
            data={hits}
            lines={[{ label: S.perf.hitRate, colour: "--read", fill: true }]}
            format={(v) => percent(v)}
            most={1}
            now={[
              newest?.hit === null || newest?.hit === undefined ? S.perf.noReads : percent(newest.hit, 1),
            ]}
          />
        </Card>
        <Card>
          <Plot
            label={S.perf.arcSize}
            data={sizes}
            lines={[
              { label: S.perf.arcNow, colour: "--read", fill: true },
              { label: S.perf.arcTarget, colour: "--info", dash: [4, 3] },
            ]}
            binary
            format={(v) => size(Math.round(v))}
            now={[size(newest?.size), size(newest?.target)]}
          />
        </Card>
        {newest && (newest.l2Size > 0 || cached(entry)) ? <SecondCache arc={arc} newest={newest} /> : null}
        <Groups pool={pool} />
        {written ? (
          <Card title={S.perf.amplification} level={3}>
            <p class="muted">{S.perf.amplificationText}</p>
            <Facts
              of={[
                [S.perf.logical, size(written.logical_bytes)],
                [S.perf.compressed, size(written.compressed_bytes)],
                [S.perf.allocated, size(written.allocated_bytes)],
                [
                  S.perf.devices,
                  size(
                    (written.device_bytes ?? 0) +
                      (written.metadata_device_bytes ?? 0) +
                      (written.log_device_bytes ?? 0),
                  ),
                ],
                [S.perf.metadata, size(written.metadata_bytes)],
                [S.perf.log, size(written.log_bytes)],
                written.logical_bytes
                  ? [
                      S.perf.factor,
                      `${(((written.device_bytes ?? 0) + (written.metadata_device_bytes ?? 0) + (written.log_device_bytes ?? 0)) / written.logical_bytes).toFixed(2)}×`,
                    ]
                  : false,
              ]}
            />
          </Card>
        ) : null}
      </div>
    </>
  );
}

/** Whether the pool has cache devices. */
const cached = (entry: Schemas["PoolIo"] | undefined) =>
  entry?.vdevs.children.some((v) => v.class === "l2cache") ?? false;

function SecondCache({ arc, newest }: { arc: readonly Arc[]; newest: Arc }) {
  const { times, hits, traffic, sizes } = useMemo(() => {
    const of = arc.map((a) => a.at);
    return {
      times: of,
      hits: [of, arc.map((a) => a.l2Hit)],
      traffic: [of, arc.map((a) => a.l2Read), arc.map((a) => a.l2Write)],
      sizes: [of, arc.map((a) => a.l2Size), arc.map((a) => a.l2Stored)],
    };
  }, [newest.at]);
  if (!times.length) return null;
  return (
    <>
      <Card>
        <Plot
          label={S.perf.l2Hits}
          data={hits}
          lines={[{ label: S.perf.l2HitRate, colour: "--read", fill: true }]}
          format={(v) => percent(v)}
          most={1}
          now={[newest.l2Hit === null ? S.perf.noReads : percent(newest.l2Hit, 1)]}
        />
      </Card>
      <Card>
        <Plot
          label={S.perf.l2Traffic}
          data={traffic}
          lines={[
            { label: S.perf.read, colour: "--read", fill: true },
            { label: S.perf.written, colour: "--write", fill: true },
          ]}
          binary
          idle={2 ** 20}
          format={(v) => rate(v)}
          now={[rate(newest.l2Read), rate(newest.l2Write)]}
        />
      </Card>
      <Card>
        <Plot
          label={S.perf.l2Size}
          data={sizes}
          lines={[
            { label: S.perf.l2Logical, colour: "--info", dash: [4, 3] },
            { label: S.perf.l2Stored, colour: "--read", fill: true },
          ]}
          binary
          idle={2 ** 20}
          format={(v) => size(Math.round(v))}
          now={[size(newest.l2Size), size(newest.l2Stored)]}
        />
      </Card>
    </>
  );
}

function Groups({ pool }: { pool: string }) {
  const counters = useQuery("counters", { groups: ["txgs"], pools: [pool] }, { every: 3000 });
  const done = (counters.data?.txgs?.find((t) => t.pool === pool)?.txgs ?? []).filter((t) => t.state === "C");
  const last = done[done.length - 1];
  const data = useMemo(
    () => [done.map((t) => Number(t.birth_ns) / 1e9), done.map((t) => Number(t.stime_ns))],
    [last?.txg],
  );
  const dirty = useMemo(
    () => [done.map((t) => Number(t.birth_ns) / 1e9), done.map((t) => Number(t.ndirty))],
    [last?.txg],
  );
  return (
    <>
      <Card>
        <Plot
          label={S.perf.txgs}
          data={data}
          points
          lines={[{ label: S.perf.sync, colour: "--write" }]}
          format={(v) => (v ? latency(v) : "0")}
          now={[last ? latency(Number(last.stime_ns)) : "–"]}
        />
      </Card>
      <Card>
        <Plot
          label={S.perf.dirty}
          data={dirty}
          points
          lines={[{ label: S.perf.dirtyBytes, colour: "--write", fill: true }]}
          binary
          idle={2 ** 20}
          format={(v) => size(Math.round(v))}
          now={[last ? size(last.ndirty) : "–"]}
        />
      </Card>
    </>
  );
}

/** The share of reads that a cache of some size would answer, between the points that are known. */
function at(points: readonly (readonly number[])[], bytes: number): number {
  let before = [0, 0] as readonly number[];
  for (const point of points) {
    const [x = 0, y = 0] = point;
    if (x >= bytes) {
      const [x0 = 0, y0 = 0] = before;
      return x > x0 ? y0 + ((y - y0) * (bytes - x0)) / (x - x0) : y;
    }
    before = point;
  }
  return before[1] ?? 0;
}

function WhatIf({ pool }: { pool: string }) {
  const answer = useQuery("what-if", { pools: [pool] }, { every: 15_000 });
  return (
    <Card title={S.perf.whatIf}>
      <p class="muted">{S.perf.whatIfText}</p>
      <Shown of={answer} needs="what-if">
        {(data) => {
          const mine = data.entries.find((e) => e.name === pool);
          const curve = mine?.curves.find((c) => !c.dataset);
          if (!mine || !curve || curve.points.length < 2) return <Empty>{S.perf.whatIfNone}</Empty>;
          return <Curve arc={mine.arc_bytes} curve={curve} />;
        }}
      </Shown>
    </Card>
  );
}
function Curve({ arc, curve }: { arc: number; curve: Schemas["Curve"] }) {
  const points = curve.points as unknown as number[][];
  const lowest = (curve.least_points ?? []) as unknown as number[][];
  const least = Math.log2(Math.max(4096, points[0]?.[0] ?? 4096));
  const most = Math.log2(Math.max(arc, points[points.length - 1]?.[0] ?? arc)) + 1;
  const [power, setPower] = useState(Math.log2(arc));
  const bytes = 2 ** power;
  const data = useMemo(() => {
    const xs: number[] = [];
    for (let p = least; p <= most; p += (most - least) / 120) xs.push(2 ** p);
    return [xs, xs.map((x) => at(points, x)), xs.map((x) => at(lowest, x))];
  }, [curve]);
  return (
    <>
      <Plot
        label={S.perf.curve}
        data={data}
        most={1}
        lines={[
          { label: S.perf.answered, colour: "--read", fill: true },
          { label: S.perf.answeredLeast, colour: "--info", dash: [4, 3] },
        ]}
        format={(v) => percent(v)}
        xs={(v) => size(Math.round(v))}
        now={[percent(at(points, bytes), 1), percent(at(lowest, bytes), 1)]}
        height={210}
      />
      <div class="slider">
        <label for="what-if-size">{S.perf.cacheOf(size(Math.round(bytes)))}</label>
        <input
          id="what-if-size"
          type="range"
          min={least}
          max={most}
          step={0.05}
          value={power}
          aria-valuetext={S.perf.sliderText(size(Math.round(bytes)), percent(at(points, bytes), 1))}
          onInput={(e) => setPower(Number(e.currentTarget.value))}
        />
      </div>
      <Facts
        of={[
          [S.perf.wouldAnswer, percent(at(points, bytes), 1)],
          [S.perf.arcToday, `${size(arc)}, ${percent(curve.now?.hit_ratio ?? at(points, arc), 1)}`],
          curve.now ? [S.perf.trust, S.perf.trusts[curve.now.trust]] : false,
          [S.perf.samples, count(curve.samples)],
          [S.perf.distinct, size(curve.distinct_bytes)],
        ]}
      />
    </>
  );
}
