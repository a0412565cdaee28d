// A report of the lab as the lab writes it: what it says and shows, in order. Texts may have `code` between
// backticks and nothing else; they are never markup.

export interface Document {
  generator: string;
  version: number;
  title: string;
  question: string;
  /** Warnings: what is modelled, unfinished or left out. */
  notes: string[];
  answer?: { sentences: string[]; is_answered: boolean } | null;
  blocks: Block[];
  /** How it was measured. */
  facts: string[];
}

/** How the marks of an axis are written. */
export type Unit =
  | "count"
  | "per_second"
  | "bytes"
  | "bytes_per_second"
  | "seconds"
  | "seconds_per_gigabyte"
  | "share"
  | "ratio";

export interface Bars {
  kind: "bars";
  unit: Unit;
  bars: {
    label: string;
    text: string;
    value: number;
    low: number;
    high: number;
    class: "baseline" | "limit" | "better" | "worse" | "same";
  }[];
  /** Values that no bar can pass. */
  lines: { label: string; value: number }[];
}
/** Values of each row from the smallest to the largest, on one logarithmic axis. */
export interface Percentiles {
  kind: "percentiles";
  unit: Unit;
  rows: { label: string; text: string; values: number[] }[];
}
/** Figures over seconds. */
export interface Courses {
  kind: "courses";
  unit: Unit;
  title: string;
  across: string;
  courses: { label: string; points: [number, number][]; band: [number, number][] }[];
}
export interface Dots {
  kind: "dots";
  x: { title: string; unit: Unit };
  y: { title: string; unit: Unit };
  dots: { label: string; x: number; y: number; marked: boolean }[];
}
export interface Rows {
  kind: "table";
  /** The first row is the head. */
  rows: string[][];
  /** Which columns have words. */
  words: boolean[];
  /** How good cells are, as logarithms, without the head and the first column. May be empty. */
  shades: number[][];
}
export type Block =
  | { kind: "heading"; level: 2 | 3; text: string; small?: string | null }
  | { kind: "prose"; text: string; strong?: boolean }
  | { kind: "list"; items: string[]; ordered?: boolean }
  | Rows
  | Bars
  | Percentiles
  | Courses
  | Dots;
