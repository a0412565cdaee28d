// Plots as SVG: bars with intervals, percentiles, courses and dots. Each has its figures as text too.
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Bars, Courses, Dots, Percentiles } from "./document";
import { R } from "./strings";
import { decades, ticks, written } from "./units";

/** A text with what is between pairs of backticks as code. */
export function Prose({ text }: { text: string }) {
  const parts = text.split("`");
  if (parts.length % 2 === 0) return <>{text}</>;
  return <>{parts.map((part, i) => (i % 2 ? <code key={i}>{part}</code> : part))}</>;
}

const number = (value: number | null | undefined) =>
  typeof value === "number" && Number.isFinite(value) ? value : 0;
const most = (values: number[]) => values.reduce((a, b) => Math.max(a, number(b)), 0);
const percent = (part: number) => `${(Math.max(0, Math.min(1, number(part))) * 100).toFixed(2)}%`;

/** The width that there is, so that words of plots are never smaller than the others. */
function useWidth(otherwise: number) {
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(otherwise);
  useLayoutEffect(() => {
    const el = box.current;
    if (!el) return undefined;
    const measure = () => el.clientWidth && setWidth(Math.max(260, Math.min(900, el.clientWidth)));
    measure();
    const watch = new ResizeObserver(measure);
    watch.observe(el);
    return () => watch.disconnect();
  }, []);
  return { box, width };
}

function Figures({ head, rows }: { head: string[]; rows: ComponentChildren[][] }) {
  return (
    <details>
      <summary>{R.figures}</summary>
      <div class="r-table" tabIndex={0} role="group" aria-label={R.table}>
        <table>
          <thead>
            <tr>
              {head.map((h, i) => (
                <th scope="col" key={i} class={i ? undefined : "r-words"}>
                  {h}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.map((row, i) => (
              <tr key={i}>
                {row.map((cell, c) =>
                  c ? (
                    <td key={c}>{cell}</td>
                  ) : (
                    <th scope="row" class="r-words" key={c}>
                      {cell}
                    </th>
                  ),
                )}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </details>
  );
}

/** How far beyond the longest bar a line may be to be drawn, and an interval. */
const LINES_REACH = 1.5;
const INTERVALS_REACH = 1.25;

export function BarsPlot({ of }: { of: Bars }) {
  const reach = most(of.bars.map((b) => b.value)) * INTERVALS_REACH;
  const longest = most(of.bars.map((b) => Math.max(number(b.value), Math.min(number(b.high), reach))));
  const near = of.lines.filter((l) => l.value <= longest * LINES_REACH);
  const end = Math.max(longest, most(near.map((l) => l.value))) || 1;
  const x = (value: number) => percent(number(value) / end);
  return (
    <figure class="r-plot">
      <ul class="r-bars">
        {of.bars.map((bar, i) => {
          const beyond = number(bar.high) > reach;
          const high = Math.min(number(bar.high), reach);
          return (
            <li key={i}>
              <span class="r-label">
                <Prose text={bar.label} />
              </span>
              <svg class="r-track" aria-hidden="true">
                <rect class={`r-bar r-${bar.class}`} y="4" width={x(bar.value)} height="14" />
                {near.map((l, n) => (
                  <line class="r-limit-line" key={n} x1={x(l.value)} x2={x(l.value)} y1="0" y2="22" />
                ))}
                <g class="r-interval">
                  <line x1={x(bar.low)} x2={x(high)} y1="11" y2="11" />
                  <line x1={x(bar.low)} x2={x(bar.low)} y1="7" y2="15" />
                  {beyond ? (
                    <svg x={x(high)} y="11" overflow="visible">
                      <path d="M-6 -4l6 4l-6 4" />
                    </svg>
                  ) : (
                    <line x1={x(high)} x2={x(high)} y1="7" y2="15" />
                  )}
                </g>
              </svg>
              <span class="r-text">
                {bar.text}
                <span class="r-sr"> ({R.classes[bar.class] ?? bar.class})</span>
              </span>
            </li>
          );
        })}
      </ul>
      {of.lines.length ? (
        <ul class="r-legend">
          {of.lines.map((l, i) => (
            <li key={i}>
              <span class="r-swatch r-dashed" /> <Prose text={l.label} />
              {near.includes(l) ? "" : ` (${R.beyond})`}
            </li>
          ))}
        </ul>
      ) : null}
    </figure>
  );
}

export function PercentilesPlot({ of }: { of: Percentiles }) {
  const all = of.rows.flatMap((r) => r.values).filter((v) => number(v) > 0);
  const low = all.reduce((a, b) => Math.min(a, b), Infinity);
  const high = most(all);
  const span = Math.log(high / low) || 1e-9;
  const x = (value: number) => percent(value > 0 ? Math.log(value / low) / span : 0);
  const marks = all.length ? decades(low, high) : [];
  return (
    <figure class="r-plot">
      <ul class="r-bars r-inset">
        {of.rows.map((row, i) => (
          <li key={i}>
            <span class="r-label">
              <Prose text={row.label} />
            </span>
            <svg class="r-track" aria-hidden="true">
              {marks.map((m) => (
                <line class="r-grid" key={m} x1={x(m)} x2={x(m)} y1="0" y2="22" />
              ))}
              {row.values.length ? (
                <line
                  class="r-axis"
                  x1={x(row.values[0] ?? 0)}
                  x2={x(row.values[row.values.length - 1] ?? 0)}
                  y1="11"
                  y2="11"
                />
              ) : null}
              {row.values.map((v, n) => (
                <circle key={n} class={n ? "r-dot" : "r-dot r-marked"} cx={x(v)} cy="11" r="4.5" />
              ))}
            </svg>
            <span class="r-text">{row.text}</span>
          </li>
        ))}
        {marks.length ? (
          <li aria-hidden="true">
            <span class="r-label" />
            <svg class="r-track r-marks">
              {marks.map((m) => (
                <text key={m} x={x(m)} y="14" text-anchor="middle">
                  {written(of.unit, m)}
                </text>
              ))}
            </svg>
            <span class="r-text" />
          </li>
        ) : null}
      </ul>
    </figure>
  );
}

/** Beyond that many lines dashes tell them apart. */
const COLOURS = 8;
const DASHES = ["", "7 3", "2 3", "9 3 2 3"];
const dashOf = (i: number) => DASHES[Math.floor(i / COLOURS) % DASHES.length];

const LETTER = 7.2;
const LINE = 15;
const room = (texts: string[]) => 14 + LETTER * most(texts.map((t) => t.length));

export function CoursesPlot({ of }: { of: Courses }) {
  const { box, width } = useWidth(640);
  if (!of.courses.length) return null;
  const height = 240;
  const values = of.courses.flatMap((c) => [...c.points.map((p) => p[1]), ...c.band.map((b) => b[1])]);
  const top = most(values) || 1;
  const end = most(of.courses.flatMap((c) => c.points.map((p) => p[0]))) || 1;
  const up = ticks(of.unit, top);
  const across = ticks("seconds", end);
  const left = room(up.map((v) => written(of.unit, v)));
  const [above, below, right] = [26, 38, 16];
  const x = (value: number) => left + (width - left - right) * Math.min(1, Math.max(0, number(value) / end));
  const y = (value: number) => above + height * (1 - Math.min(1, Math.max(0, number(value) / top)));
  const places = (points: readonly (readonly [number, number])[]) =>
    points.map(([a, b]) => `${x(a).toFixed(1)},${y(b).toFixed(1)}`).join(" ");
  const write = (v: number | undefined) => (v === undefined ? "–" : written(of.unit, v));
  return (
    <figure class="r-plot" ref={box as never}>
      <svg viewBox={`0 0 ${width} ${height + above + below}`} width={width} aria-hidden="true">
        <text x={left} y={above - 11}>
          {of.title}
        </text>
        {up.map((v) => (
          <g key={v}>
            <line class="r-grid" x1={left} x2={width - right} y1={y(v)} y2={y(v)} />
            <text x={left - 6} y={y(v) + 4} text-anchor="end">
              {written(of.unit, v)}
            </text>
          </g>
        ))}
        {across.map((v) => (
          <text key={v} x={x(v)} y={above + height + 16} text-anchor="middle">
            {v ? written("seconds", v) : "0 s"}
          </text>
        ))}
        <text x={width - right} y={above + height + 33} text-anchor="end">
          {of.across}
        </text>
        <path class="r-axis" d={`M${left} ${above}V${above + height}H${width - right}`} />
        {of.courses.map((c, i) =>
          c.band.length ? (
            <polygon
              key={i}
              class={`r-band r-c${i % COLOURS}`}
              points={places([
                ...c.points.slice(0, c.band.length).map((p, n) => [p[0], c.band[n]?.[0] ?? 0] as const),
                ...c.points
                  .slice(0, c.band.length)
                  .map((p, n) => [p[0], c.band[n]?.[1] ?? 0] as const)
                  .reverse(),
              ])}
            />
          ) : null,
        )}
        {of.courses.map((c, i) => (
          <g key={i}>
            <polyline
              class={`r-course r-c${i % COLOURS}`}
              stroke-dasharray={dashOf(i)}
              points={places(c.points)}
            />
            {c.points.length <= 40
              ? c.points.map((p, n) => (
                  <circle key={n} class={`r-point r-c${i % COLOURS}`} cx={x(p[0])} cy={y(p[1])} r="2.5" />
                ))
              : null}
          </g>
        ))}
      </svg>
      <ul class="r-legend">
        {of.courses.map((c, i) => (
          <li key={i}>
            <svg class="r-key" viewBox="0 0 22 8" width="22" height="8" aria-hidden="true">
              <line
                class={`r-course r-c${i % COLOURS}`}
                stroke-dasharray={dashOf(i)}
                x1="0"
                x2="22"
                y1="4"
                y2="4"
              />
            </svg>{" "}
            <Prose text={c.label} />
          </li>
        ))}
      </ul>
      <Figures
        head={[R.variant, R.first, R.least, R.median, R.most, R.last]}
        rows={of.courses.map((c) => {
          const list = c.points.map((p) => number(p[1]));
          const sorted = [...list].sort((a, b) => a - b);
          const found = [
            list[0],
            sorted[0],
            sorted[Math.floor((sorted.length - 1) / 2)],
            sorted[sorted.length - 1],
            list[list.length - 1],
          ];
          return [<Prose text={c.label} />, ...found.map(write)];
        })}
      />
    </figure>
  );
}

interface Placed {
  at: number;
  anchor: "start" | "end";
  height: number;
}
/** A name stands beside its dot, on the right or else on the left; where others are in the way, above or below. */
function namesOf(dots: { x: number; y: number; label: string }[], left: number, right: number): Placed[] {
  const taken = dots.map((d) => ({ from: d.x - 5, to: d.x + 5, y: d.y }));
  return dots.map((d) => {
    const wide = LETTER * d.label.length;
    const sides = [
      { from: d.x + 9, to: d.x + 9 + wide, anchor: "start" as const },
      { from: d.x - 9 - wide, to: d.x - 9, anchor: "end" as const },
    ].filter((s) => s.from >= left && s.to <= right);
    for (let step = 0; step < 2 * dots.length && sides.length; step += 1) {
      const away = LINE * Math.ceil(step / 2);
      const height = step % 2 ? d.y + away : d.y - away;
      const found = sides.find(
        (s) => !taken.some((t) => t.from < s.to && s.from < t.to && Math.abs(t.y - height) < LINE),
      );
      if (found) {
        taken.push({ from: found.from, to: found.to, y: height });
        return { at: found.anchor === "end" ? found.to : found.from, anchor: found.anchor, height };
      }
    }
    return d.x > (left + right) / 2
      ? { at: d.x - 9, anchor: "end" as const, height: d.y }
      : { at: d.x + 9, anchor: "start" as const, height: d.y };
  });
}

export function DotsPlot({ of }: { of: Dots }) {
  const { box, width } = useWidth(640);
  if (!of.dots.length) return null;
  const height = Math.round(Math.min(320, width * 0.7));
  const endX = most(of.dots.map((d) => d.x)) || 1;
  const endY = most(of.dots.map((d) => d.y)) || 1;
  const up = ticks(of.y.unit, endY);
  const across = ticks(of.x.unit, endX);
  const left = room(up.map((v) => written(of.y.unit, v)));
  const [above, below, right] = [30, 38, 24];
  const x = (value: number) => left + (width - left - right) * Math.min(1, number(value) / endX);
  const y = (value: number) => above + height * (1 - Math.min(1, number(value) / endY));
  const at = of.dots.map((d) => ({ x: x(d.x), y: y(d.y), label: d.label, marked: d.marked }));
  const names = namesOf(at, left, width);
  return (
    <figure class="r-plot" ref={box as never}>
      <svg viewBox={`0 0 ${width} ${height + above + below}`} width={width} aria-hidden="true">
        <text x={left} y={above - 14}>
          {of.y.title}
        </text>
        {up.map((v) => (
          <g key={v}>
            <line class="r-grid" x1={left} x2={width - right} y1={y(v)} y2={y(v)} />
            <text x={left - 6} y={y(v) + 4} text-anchor="end">
              {written(of.y.unit, v)}
            </text>
          </g>
        ))}
        {across.map((v) => (
          <g key={v}>
            <line class="r-grid" x1={x(v)} x2={x(v)} y1={above} y2={above + height} />
            <text x={x(v)} y={above + height + 16} text-anchor="middle">
              {written(of.x.unit, v)}
            </text>
          </g>
        ))}
        <text x={width - right} y={above + height + 33} text-anchor="end">
          {of.x.title}
        </text>
        <path class="r-axis" d={`M${left} ${above}V${above + height}H${width - right}`} />
        {at.map((d, i) => {
          const name = names[i] as Placed;
          return (
            <g key={i}>
              {name.height === d.y ? null : (
                <line class="r-grid" x1={d.x} y1={d.y} x2={name.at} y2={name.height} />
              )}
              <circle class={d.marked ? "r-dot r-marked" : "r-dot"} cx={d.x} cy={d.y} r="5" />
              <text x={name.at} y={name.height + 4} text-anchor={name.anchor}>
                {d.label}
              </text>
            </g>
          );
        })}
      </svg>
      <Figures
        head={[R.variant, of.x.title, of.y.title, R.onFront]}
        rows={of.dots.map((d) => [
          <Prose text={d.label} />,
          written(of.x.unit, d.x),
          written(of.y.unit, d.y),
          d.marked ? R.yes : R.no,
        ])}
      />
    </figure>
  );
}
