// Requests to the daemon. Every action of the API is `ask("name", request)`, with the types of openapi.json.
import type { components, paths } from "./schema";

export type Schemas = components["schemas"];

type Partially<T> = T extends string | number | boolean | null | undefined
  ? T
  : T extends [unknown, ...unknown[]]
    ? T
    : T extends (infer E)[]
      ? Partially<E>[]
      : { [K in keyof T]?: Partially<T[K]> };

type Post<P> = P extends { post: infer O } ? O : never;
type InOf<O> = O extends { requestBody: { content: { "application/json": infer B } } }
  ? B
  : O extends { requestBody?: { content: { "application/json": infer B } } }
    ? B
    : never;
type OutOf<O> = O extends { responses: { 200: { content: infer C } } } ? C[keyof C] : never;

type Declared = { [P in keyof paths as P extends `/v1/${infer A}` ? A : never]: Post<paths[P]> };
export type Action = keyof Declared;
export type RequestOf<A extends Action> = Partially<InOf<Declared[A]>>;
export type ReplyOf<A extends Action> = OutOf<Declared[A]>;

/** An error as the API answers it, or one of the connection (`kind` "connection"). */
export class ApiError extends Error {
  constructor(
    readonly kind: string,
    message: string,
    readonly status: number,
    readonly retryAfter?: number,
  ) {
    super(message);
  }
}

/** Reads JSON; whole numbers that JavaScript cannot hold (guids) become strings. */
export function parse(text: string): unknown {
  if (!/[:[,]\s*-?\d{16}/.test(text)) return JSON.parse(text);
  const safe = text.replace(/"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g, (found) =>
    found.length < 16 || found[0] === '"' || /[.eE]/.test(found) || Number.isSafeInteger(Number(found))
      ? found
      : `"${found}"`,
  );
  return JSON.parse(safe);
}

let csrf = "";
let ended: () => void = () => {};

/** The token that requests of this session carry. */
export function setCsrf(token: string) {
  csrf = token;
}
export const csrfToken = () => csrf;
/** What is done when the daemon says that the session ended. */
export function onEnded(then: () => void) {
  ended = then;
}

export async function call(path: string, init: RequestInit = {}): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(path, {
      ...init,
      credentials: "same-origin",
      headers: { ...(csrf ? { "x-cenote-csrf": csrf } : {}), ...init.headers },
    });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError("connection", "", 0);
  }
  if (response.ok) return response;
  let kind = "failed";
  let message = `${response.status} ${response.statusText}`;
  try {
    const said = (await response.json()) as { kind?: string; message?: string };
    kind = said.kind ?? kind;
    message = said.message ?? message;
  } catch {
    // Not an answer of the API: the status is all that there is.
  }
  if (response.status === 401) ended();
  const after = Number(response.headers.get("retry-after") ?? "");
  throw new ApiError(kind, message, response.status, after || undefined);
}

function posted(body: unknown, signal?: AbortSignal): RequestInit {
  return {
    method: "POST",
    body: JSON.stringify(body),
    headers: { "content-type": "application/json" },
    ...(signal ? { signal } : {}),
  };
}

export async function ask<A extends Action>(
  action: A,
  request: RequestOf<A>,
  signal?: AbortSignal,
): Promise<ReplyOf<A>> {
  const response = await call(`/v1/${action}`, posted(request, signal));
  let text: string;
  try {
    text = await response.text();
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError("connection", "", 0);
  }
  return (text ? parse(text) : null) as ReplyOf<A>;
}

/** An answer of lines, each of them JSON, as they come. */
export async function* lines<A extends Action>(
  action: A,
  request: RequestOf<A>,
  signal: AbortSignal,
): AsyncGenerator<unknown> {
  const response = await call(`/v1/${action}`, posted(request, signal));
  for await (const line of textLines(response)) if (line.trim()) yield parse(line);
}

export async function* textLines(response: Response): AsyncGenerator<string> {
  if (!response.body) return;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    const parts = (rest + value).split("\n");
    rest = parts.pop() ?? "";
    yield* parts;
  }
  if (rest) yield rest;
}

export interface Session {
  user: string;
  role: "viewer" | "operator" | "admin";
  csrf: string;
  version: string;
  host: string;
  expires_in: number;
}

export async function currentSession(): Promise<Session> {
  return (await (await call("/session")).json()) as Session;
}
export async function signIn(given: { link: string } | { user: string; password: string }): Promise<Session> {
  return (await (await call("/sign-in", posted(given))).json()) as Session;
}
export async function signOut(): Promise<void> {
  await call("/sign-out", { method: "POST" });
}
