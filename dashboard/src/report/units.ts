// Marks of axes: round values, and how they are written.
import type { Unit } from "./document";

const digits = (value: number) => (Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2);
/** At most so many digits, without zeros at the end. */
const short = (value: number) => String(Number(value.toFixed(digits(value))));

function scaled(value: number, steps: readonly (readonly [number, string])[]): string {
  const size = Math.abs(value);
  const [by, name] = steps.find(([by]) => size >= by) ?? steps[steps.length - 1] ?? [1, ""];
  return `${short(value / by)}${name}`;
}
const PLAIN = [
  [1e9, "G"],
  [1e6, "M"],
  [1e4, "k"],
  [1, ""],
] as const;
const BYTES = [
  [2 ** 40, " TiB"],
  [2 ** 30, " GiB"],
  [2 ** 20, " MiB"],
  [2 ** 10, " KiB"],
  [1, " B"],
] as const;
const SECONDS = [
  [7200, " h"],
  [120, " min"],
  [1, " s"],
  [1e-3, " ms"],
  [1e-6, " us"],
  [1e-9, " ns"],
] as const;
/** `k` counts from a thousand there. */
const thousands = (value: number) =>
  Math.abs(value) >= 1e4
    ? scaled(
        value,
        PLAIN.map(([by, name]) => [by === 1e4 ? 1e3 : by, name] as const),
      )
    : short(value);
const hours = (value: number, name: string) => `${short(value)}${name}`;

export function written(unit: Unit, value: number): string {
  if (!Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  switch (unit) {
    case "bytes":
      return scaled(value, BYTES);
    case "bytes_per_second":
      return `${scaled(value, BYTES)}/s`;
    case "seconds":
      if (Math.abs(value) >= 7200) return hours(value / 3600, " h");
      if (Math.abs(value) >= 120) return hours(value / 60, " min");
      return scaled(value, SECONDS.slice(2));
    case "seconds_per_gigabyte":
      return `${short(value)} s/GB`;
    case "share":
      return `${short(value * 100)}%`;
    case "per_second":
    case "count":
      return thousands(value);
    default:
      return short(value);
  }
}

/** What round values are round in: of bytes a power of 1024, of long times minutes or hours. */
function roundIn(unit: Unit, most: number): number {
  if (unit === "bytes" || unit === "bytes_per_second")
    return most >= 1 ? 1024 ** Math.floor(Math.log2(most) / 10) : 1;
  if (unit === "seconds") return most >= 7200 ? 3600 : most >= 120 ? 60 : 1;
  return 1;
}

/** Round values from zero on that divide an axis up to `most` into three to six parts. */
export function ticks(unit: Unit, most: number): number[] {
  if (!(Number.isFinite(most) && most > 0)) return [];
  const by = roundIn(unit, most);
  const end = most / by;
  const magnitude = 10 ** Math.floor(Math.log10(end / 3));
  const step = [5, 2, 1].map((n) => n * magnitude).find((s) => end / s >= 3) ?? magnitude;
  const count = Math.min(12, Math.floor((end / step) * (1 + 1e-9)));
  return Array.from({ length: count + 1 }, (_, i) => i * step * by);
}

/** The powers of ten between, at most twelve. */
export function decades(least: number, most: number): number[] {
  if (!(least > 0 && most >= least)) return [];
  const list: number[] = [];
  for (let p = Math.ceil(Math.log10(least)); p <= Math.floor(Math.log10(most)) && list.length < 12; p += 1)
    list.push(10 ** p);
  return list;
}
