// Numbers, times and sizes for people.

const UNITS = ["B", "K", "M", "G", "T", "P", "E"];

/** A size as `zfs list` prints it: 1.50G, 23K, 0B. */
export function size(bytes: number | string | null | undefined): string {
  if (bytes === null || bytes === undefined) return "–";
  let value = Number(bytes);
  if (!Number.isFinite(value)) return String(bytes);
  let unit = 0;
  const whole = Math.floor(value);
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  if (unit === 0) return `${whole}B`;
  if (Number.isInteger(value)) return `${value}${UNITS[unit]}`;
  for (const digits of [2, 1, 0]) {
    const text = value.toFixed(digits);
    if (text.length <= 4) return `${text}${UNITS[unit]}`;
  }
  return `${Math.round(value)}${UNITS[unit]}`;
}

export function rate(bytesPerSecond: number): string {
  return `${size(Math.round(bytesPerSecond))}/s`;
}

/** A size that is typed: 100G, 1.5T, 4096. Nothing where it is none. */
export function readSize(text: string): number | undefined {
  const match = /^\s*(\d+(?:\.\d+)?)\s*([KMGTPE]?)(?:i?B)?\s*$/i.exec(text);
  if (!match) return undefined;
  const power = " KMGTPE".indexOf((match[2] ?? "").toUpperCase() || " ");
  return Math.round(Number(match[1]) * 1024 ** power);
}

export function count(value: number | string | undefined): string {
  const n = Number(value ?? 0);
  if (n >= 1e9) return `${(n / 1e9).toFixed(1)}G`;
  if (n >= 1e6) return `${(n / 1e6).toFixed(1)}M`;
  if (n >= 1e4) return `${(n / 1e3).toFixed(1)}k`;
  if (n > 0 && n < 10 && !Number.isInteger(n)) return n.toFixed(1);
  return String(Math.round(n));
}

export function percent(part: number, digits = 0): string {
  return `${(part * 100).toFixed(digits)}%`;
}

/** How long something takes: 3 s, 12 min, 2 h 5 min, 3 d 4 h. */
export function duration(seconds: number): string {
  const s = Math.max(0, Math.round(seconds));
  if (s < 90) return `${s} s`;
  const minutes = Math.round(s / 60);
  if (minutes < 90) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
  const days = Math.floor(hours / 24);
  return hours % 24 ? `${days} d ${hours % 24} h` : `${days} d`;
}

/** A latency: 850 ns, 12.3 µs, 4.5 ms, 1.2 s. */
export function latency(ns: number): string {
  if (!Number.isFinite(ns) || ns <= 0) return "–";
  if (ns < 1e3) return `${Math.round(ns)} ns`;
  if (ns < 1e6) return `${(ns / 1e3).toFixed(ns < 1e5 ? 1 : 0)} µs`;
  if (ns < 1e9) return `${(ns / 1e6).toFixed(ns < 1e8 ? 1 : 0)} ms`;
  return `${(ns / 1e9).toFixed(1)} s`;
}

const DATE = new Intl.DateTimeFormat("en-GB", { year: "numeric", month: "short", day: "2-digit" });
const TIME = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

export function when(seconds: number | string | null | undefined): string {
  const n = Number(seconds ?? 0);
  if (!n) return "–";
  const date = new Date(n * 1000);
  return `${DATE.format(date)}, ${TIME.format(date)}`;
}

/** How long ago, or in how long. */
export function ago(seconds: number, now = Date.now() / 1000): string {
  const past = now - seconds;
  if (Math.abs(past) < 5) return "now";
  return past > 0 ? `${duration(past)} ago` : `in ${duration(-past)}`;
}

/** The last part of a path, and all of it where there is no slash. */
export function base(path: string): string {
  return path.slice(path.lastIndexOf("/") + 1) || path;
}

/** A word as a shell reads it. */
export function quoted(word: string): string {
  return /^[A-Za-z0-9_@%+=:,./#-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}
export function commandLine(words: readonly string[]): string {
  return words.map(quoted).join(" ");
}
