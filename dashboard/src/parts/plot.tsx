// Plots over time (uPlot) and a heat map of latencies. Colours are those of the theme.
import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { theme } from "../theme";

export interface Line {
  label: string;
  /** A custom property of the style sheet. */
  colour: string;
  dash?: number[];
  fill?: boolean;
}

/** The colour that a custom property has now, as a canvas takes it. */
function resolved(name: string, from: HTMLElement): string {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  from.append(probe);
  const colour = getComputedStyle(probe).color;
  probe.remove();
  return colour;
}

const POWERS = Array.from({ length: 50 }, (_, i) => 2 ** i);

/** Powers of two between, at most about eight of them. */
function sizesIn(min: number, max: number): number[] {
  const low = Math.ceil(Math.log2(Math.max(1, min)));
  const high = Math.floor(Math.log2(Math.max(1, max)));
  const step = Math.max(1, Math.ceil((high - low) / 8));
  const list: number[] = [];
  for (let p = low; p <= high; p += step) list.push(2 ** p);
  return list;
}

/** A minute or more, until the newest value. */
function timeRange(least: number | null, most: number | null): [number, number] {
  const end = most || Date.now() / 1000;
  return [Math.min(least || end, end - 60), end];
}

export function Plot({
  data,
  lines,
  format,
  label,
  now,
  height = 170,
  most,
  points,
  binary,
  idle = 1,
  xs,
}: {
  data: (number | null)[][];
  lines: Line[];
  format: (value: number) => string;
  label: string;
  /** The newest values, as text. */
  now?: string[];
  height?: number;
  most?: number;
  points?: boolean;
  /** How far the y axis goes while there is nothing to show. */
  idle?: number;
  /** Marks of the y axis are powers of two. */
  binary?: boolean;
  /** How values of the x axis are written, where they are no times. */
  xs?: (value: number) => string;
}) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | undefined>(undefined);
  const [dark, setDark] = useState(0);
  useEffect(() => {
    const media = matchMedia("(prefers-color-scheme: dark)");
    const changed = () => setDark((n) => n + 1);
    media.addEventListener("change", changed);
    return () => media.removeEventListener("change", changed);
  }, []);
  useEffect(() => {
    const el = box.current;
    if (!el) return undefined;
    const grid = { stroke: resolved("--line", el), width: 1 };
    const text = resolved("--muted", el);
    const font = "11px system-ui, sans-serif";
    const made = new uPlot(
      {
        width: Math.max(200, el.clientWidth),
        height,
        legend: { show: false },
        cursor: { drag: { x: false, y: false }, points: { size: 6 } },
        scales: {
          x: xs
            ? { time: false, distr: 3 as const, log: 2 as const }
            : { time: true, range: (_u, min, max) => timeRange(min, max) },
          y: { range: (_u, _min, max) => [0, most ?? (max > 0 ? max * 1.1 : idle)] },
        },
        axes: [
          {
            stroke: text,
            grid,
            ticks: grid,
            font,
            space: 70,
            size: 28,
            ...(xs
              ? {
                  splits: (_u: uPlot, _i: number, min: number, max: number) => sizesIn(min, max),
                  filter: (_u: uPlot, v: number[]) => v,
                  values: (_u: uPlot, v: (number | null)[]) => v.map((n) => (n === null ? "" : xs(n))),
                }
              : {
                  values: (_u: uPlot, v: number[]) =>
                    v.map((n) => new Date(n * 1000).toLocaleTimeString("en-GB")),
                }),
          },
          {
            stroke: text,
            grid,
            ticks: grid,
            font,
            size: 66,
            ...(binary ? { incrs: POWERS } : {}),
            values: (_u: uPlot, v: (number | null)[]) => v.map((n) => (n === null ? "" : format(n))),
          },
        ],
        series: [
          {},
          ...lines.map((l) => ({
            label: l.label,
            stroke: resolved(l.colour, el),
            width: 1.75,
            ...(l.dash ? { dash: l.dash } : {}),
            ...(l.fill ? { fill: resolved(l.colour, el).replace(/^rgb\((.*)\)$/, "rgba($1, 0.12)") } : {}),
            points: { show: Boolean(points), size: 4 },
            spanGaps: false,
          })),
        ],
      },
      data as uPlot.AlignedData,
      el,
    );
    plot.current = made;
    const watch = new ResizeObserver(() => made.setSize({ width: Math.max(200, el.clientWidth), height }));
    watch.observe(el);
    return () => {
      watch.disconnect();
      made.destroy();
      plot.current = undefined;
    };
  }, [theme.value, dark, lines.length]);
  useEffect(() => {
    plot.current?.setData(data as uPlot.AlignedData);
  }, [data]);
  return (
    <figure class="plot">
      <figcaption>
        <h3>{label}</h3>
        <ul class="legend">
          {lines.map((l, i) => (
            <li key={l.label}>
              <span
                class="swatch"
                style={{ background: `var(${l.colour})` }}
                data-dash={l.dash ? "" : undefined}
              />
              {l.label} <span class="num">{now?.[i] ?? ""}</span>
            </li>
          ))}
        </ul>
      </figcaption>
      <div
        class="plot-box"
        ref={box}
        role="img"
        aria-label={`${label}: ${lines.map((l, i) => `${l.label} ${now?.[i] ?? ""}`).join(", ")}`}
      />
    </figure>
  );
}

/** Columns of counts for each power of two of nanoseconds, newest at the right. */
export function Heat({
  columns,
  label,
  low,
  high,
  text,
}: {
  columns: number[][];
  label: string;
  low: number;
  high: number;
  text: (bucket: number) => string;
}) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const kept = 150;
  useEffect(() => {
    const el = canvas.current;
    const pen = el?.getContext("2d");
    if (!el || !pen) return;
    const rows = high - low + 1;
    el.width = kept * 4;
    el.height = rows * 8;
    pen.clearRect(0, 0, el.width, el.height);
    const colour = resolved("--read", el.parentElement ?? el);
    const most = Math.log1p(Math.max(1, ...columns.flat()));
    columns.slice(-kept).forEach((column, i, all) => {
      const x = (kept - all.length + i) * 4;
      for (let bucket = low; bucket <= high; bucket += 1) {
        const n = column[bucket] ?? 0;
        if (!n) continue;
        pen.globalAlpha = 0.15 + (0.85 * Math.log1p(n)) / most;
        pen.fillStyle = colour;
        pen.fillRect(x, (high - bucket) * 8, 4, 8);
      }
    });
  }, [columns, theme.value]);
  const marks = [];
  for (let bucket = high; bucket >= low; bucket -= 3) marks.push(bucket);
  return (
    <figure class="plot">
      <figcaption>
        <h3>{label}</h3>
      </figcaption>
      <div class="heat">
        <div class="heat-marks" aria-hidden="true">
          {marks.map((m) => (
            <span key={m}>{text(m)}</span>
          ))}
        </div>
        <canvas ref={canvas} role="img" aria-label={label} />
      </div>
    </figure>
  );
}
