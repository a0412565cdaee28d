// Asks again when it is worth it: after changes that matter, after a lost connection, or every so often while the
// page can be seen. What was known stays on the screen meanwhile.
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { ApiError, ask, type Action, type ReplyOf, type RequestOf } from "./api/client";
import { connection, listen, may, type News } from "./state";

const ALWAYS = new Set(["snapshot", "reconnected", "deed"]);

export interface Answer<T> {
  data: T | undefined;
  error: ApiError | undefined;
  busy: boolean;
  at: number;
  reload: () => void;
}
export interface When {
  /** Milliseconds. */
  every?: number;
  /** Whether news is a reason to ask again. */
  on?: (news: News) => boolean;
  /** Not asked while this is true. */
  not?: boolean;
}

export function useQuery<A extends Action>(
  action: A,
  request: RequestOf<A>,
  when: When = {},
): Answer<ReplyOf<A>> {
  const key = `${action} ${JSON.stringify(request)}`;
  const [state, setState] = useState<{
    key: string;
    data?: ReplyOf<A>;
    error?: ApiError;
    busy: boolean;
    at: number;
  }>({ key, busy: true, at: 0 });
  const latest = useRef({ request, when });
  latest.current = { request, when };
  const running = useRef<AbortController | undefined>(undefined);
  const idle = useRef(true);
  const asked = useRef(0);
  const took = useRef(0);
  const allowed = may(action) && !when.not;

  const reload = useCallback(() => {
    running.current?.abort();
    const mine = new AbortController();
    running.current = mine;
    idle.current = false;
    asked.current = Date.now();
    setState((old) => ({ ...old, busy: true }));
    const ended = () => {
      if (running.current !== mine) return;
      idle.current = true;
      took.current = Date.now() - asked.current;
    };
    ask(action, latest.current.request, mine.signal).then(
      (data) => {
        ended();
        if (running.current === mine) setState({ key, data, busy: false, at: Date.now() });
      },
      (error: unknown) => {
        ended();
        if (running.current !== mine || mine.signal.aborted) return;
        const shown = error instanceof ApiError ? error : new ApiError("failed", String(error), 0);
        setState((old) =>
          old.key === key && old.data !== undefined && shown.kind === "connection"
            ? { ...old, busy: false }
            : { key, error: shown, busy: false, at: Date.now() },
        );
      },
    );
  }, [key]);

  useEffect(() => {
    if (!allowed) return undefined;
    reload();
    let later: ReturnType<typeof setTimeout> | undefined;
    // News in plenty must not keep the daemon busy with answers: what takes long is asked for less often.
    const soon = (least: number) => {
      if (later) return;
      const wait = Math.max(least, took.current * 5 - (Date.now() - asked.current));
      later = setTimeout(() => {
        later = undefined;
        if (running.current && !idle.current) soon(least);
        else reload();
      }, wait);
    };
    const leave = listen((news) => {
      if (ALWAYS.has(news.what) || latest.current.when.on?.(news)) soon(150);
    });
    const every = latest.current.when.every;
    const ticking = every
      ? setInterval(() => {
          if (
            !document.hidden &&
            connection.value.at === "live" &&
            idle.current &&
            Date.now() - asked.current > took.current * 20
          )
            reload();
        }, every)
      : undefined;
    return () => {
      leave();
      clearTimeout(later);
      clearInterval(ticking);
      running.current?.abort();
      running.current = undefined;
    };
  }, [key, allowed]);

  const mine = state.key === key ? state : { busy: true, at: 0 };
  return {
    data: "data" in mine ? mine.data : undefined,
    error: "error" in mine ? mine.error : undefined,
    busy: mine.busy,
    at: mine.at,
    reload,
  };
}

type Entries = ReplyOf<"dataset-list">["entries"];
export interface Pages {
  entries: Entries;
  failed: ReplyOf<"dataset-list">["failed"];
  /** Whether there are more than these. */
  has: boolean;
  busy: boolean;
  loaded: boolean;
  error: ApiError | undefined;
  more: (many?: number) => void;
  reload: () => void;
}
/** A long list a page at a time. After news all that was loaded is asked for again, in one page. */
export function usePages(
  request: RequestOf<"dataset-list">,
  limit: number,
  on: (news: News) => boolean,
): Pages {
  const key = JSON.stringify(request);
  const [state, setState] = useState<{
    key: string;
    entries: Entries;
    failed: Pages["failed"];
    next?: string | null | undefined;
    busy: boolean;
    loaded: boolean;
    error?: ApiError;
  }>({ key, entries: [], failed: [], busy: true, loaded: false });
  const now = useRef(state);
  now.current = state;
  const running = useRef<AbortController | undefined>(undefined);
  const load = useCallback(
    (after: string | undefined, before: Entries, many: number) => {
      running.current?.abort();
      const mine = new AbortController();
      running.current = mine;
      setState((old) =>
        old.key === key ? { ...old, busy: true } : { ...old, key, busy: true, loaded: false },
      );
      ask("dataset-list", { ...request, limit: many, ...(after ? { after } : {}) }, mine.signal).then(
        (page) => {
          if (running.current !== mine) return;
          running.current = undefined;
          setState({
            key,
            entries: before.length ? [...before, ...page.entries] : page.entries,
            failed: page.failed,
            next: page.next,
            busy: false,
            loaded: true,
          });
        },
        (error: unknown) => {
          if (running.current !== mine) return;
          running.current = undefined;
          const shown = error instanceof ApiError ? error : new ApiError("failed", String(error), 0);
          setState((old) => ({ ...old, key, busy: false, loaded: true, error: shown }));
        },
      );
    },
    [key],
  );
  const reload = useCallback(
    () => load(undefined, [], Math.max(limit, now.current.key === key ? now.current.entries.length : 0)),
    [key],
  );
  useEffect(() => {
    setState({ key, entries: [], failed: [], busy: true, loaded: false });
    load(undefined, [], limit);
    let later: ReturnType<typeof setTimeout> | undefined;
    const leave = listen((news) => {
      if (later || !(ALWAYS.has(news.what) || on(news))) return;
      later = setTimeout(() => {
        later = undefined;
        reload();
      }, 250);
    });
    return () => {
      leave();
      clearTimeout(later);
      running.current?.abort();
      running.current = undefined;
    };
  }, [key]);
  const mine = state.key === key;
  return {
    entries: mine ? state.entries : [],
    failed: mine ? state.failed : [],
    has: mine && Boolean(state.next),
    busy: !mine || state.busy,
    loaded: mine && state.loaded,
    error: mine ? state.error : undefined,
    more: (many = limit) => {
      if (mine && state.next && !running.current) load(state.next, state.entries, many);
    },
    reload,
  };
}
