// A deed: the request, and the command line that does the same.
import type { Action, RequestOf } from "../api/client";
import { commandLine } from "../format";

export interface Deed {
  action: Action;
  request: unknown;
  /** Lines for a shell. */
  line: string;
}
export type Pairs = [string, string][];

/** A request with the command for the pool's history. */
export function kept<A extends Action>(action: A, request: RequestOf<A>, words: string[]): Deed {
  const line = commandLine(words);
  return { action, request: { ...(request as object), command: line }, line: `cenote ${line}` };
}
export function plain<A extends Action>(action: A, request: RequestOf<A>, words: string[]): Deed {
  return { action, request, line: `cenote ${commandLine(words)}` };
}
export const options = (flag: string, pairs: Pairs) =>
  pairs.flatMap(([name, value]) => [flag, `${name}=${value}`]);
export const bytesOf = (text: string) => [...new TextEncoder().encode(text)];
