// The small parts that all pages are made of.
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { ApiError } from "../api/client";
import type { Answer } from "../query";
import { may, roleFor, session } from "../state";
import { S } from "../strings";
import { size } from "../format";

export type Tone = "good" | "warn" | "bad" | "plain" | "info";

export function Icon({ name }: { name: keyof typeof ICONS }) {
  return (
    <svg class="icon" viewBox="0 0 16 16" aria-hidden="true" focusable="false">
      <path d={ICONS[name]} />
    </svg>
  );
}
const ICONS = {
  good: "M3 8.500l3.200 3.200L13 4.800",
  warn: "M8 2.500L14 13H2zM8 6.500v3M8 11.200v.3",
  bad: "M4 4l8 8M12 4l-8 8",
  info: "M8 2a6 6 0 1 0 .01 0M8 7.500v3.500M8 5v.2",
  plain: "M4 8h8",
  copy: "M5.500 5.500h7v8h-7zM3.500 10.500v-8h7",
  open: "M6 4l4 4-4 4",
  shut: "M4 6l4 4 4-4",
  menu: "M2.500 4.500h11M2.500 8h11M2.500 11.500h11",
  overview: "M2.500 8.500L8 3l5.500 5.500M4 7.500V13h8V7.500",
  pool: "M2.500 4.500c0-3 11-3 11 0v7c0 3-11 3-11 0zM2.500 4.500c0 3 11 3 11 0M2.500 8c0 3 11 3 11 0",
  dataset: "M2 4h4l1.500 2H14v7H2z",
  volume: "M2.500 3.500h11v9h-11zM5 10h6",
  share:
    "M4 8a1.500 1.500 0 1 0 .01 0M12 4a1.500 1.500 0 1 0 .01 0M12 12a1.500 1.500 0 1 0 .01 0M5.300 7.300l5.300-2.600M5.300 8.800l5.300 2.600",
  speed: "M2 12.500h12M3 10l3-4 3 2 4-5",
  bell: "M4 11V7a4 4 0 0 1 8 0v4l1 1H3zM7 13.500h2",
  gear: "M3 4.500h10M3 8h10M3 11.500h10M6 3v3M10 6.500v3M5 10v3",
  users:
    "M6 7.500a2 2 0 1 0 0-.01M2.500 13c0-4.500 7-4.500 7 0M11 7.500a1.700 1.700 0 1 0 0-.01M11.500 9.500c1.500.2 2.500 1.400 2.500 3.500",
  log: "M4 2.500h8v11H4zM6 5.500h4M6 8h4M6 10.500h2.500",
  lab: "M6.500 2.500v4L3 13h10L9.500 6.500v-4M5.500 2.500h5",
  sun: "M8 5.500a2.500 2.500 0 1 0 .01 0M8 1.500v1.500M8 13v1.500M1.500 8H3M13 8h1.500M3.500 3.500l1 1M11.500 11.500l1 1M3.500 12.500l1-1M11.500 4.500l1-1",
  camera: "M2.500 5h2.500l1-1.500h4l1 1.500h2.500v7.500h-11zM8 6.800a2 2 0 1 0 .01 0",
  lock: "M4 7.500h8v6H4zM5.500 7.500V5.500a2.500 2.500 0 0 1 5 0v2",
  disk: "M2.500 3h11v10h-11zM2.500 9.500h11M11 11.300h.5",
} as const;

export function Badge({
  tone,
  children,
  title,
}: {
  tone: Tone;
  children: ComponentChildren;
  title?: string;
}) {
  return (
    <span class={`badge ${tone}`} title={title}>
      <Icon name={tone} />
      {children}
    </span>
  );
}

/** What kind of thing something is. */
export function Kind({ children }: { children: ComponentChildren }) {
  return <span class="badge kind">{children}</span>;
}

export function toneOf(state: string): Tone {
  if (state === "ONLINE" || state === "AVAIL" || state === "INUSE") return "good";
  if (state === "DEGRADED" || state === "OFFLINE") return "warn";
  return "bad";
}

export function State({ state, title }: { state: string; title?: string }) {
  return (
    <Badge tone={toneOf(state)} {...(title ? { title } : {})}>
      {state}
    </Badge>
  );
}

/** A button. With `needs`, it is off where the role may not ask for that action, and says why. */
export function Button({
  onClick,
  children,
  kind = "",
  needs,
  off,
  type = "button",
  label,
  icon,
}: {
  onClick?: (event: MouseEvent) => void;
  children?: ComponentChildren;
  kind?: "" | "main" | "danger" | "quiet" | "remove";
  needs?: string;
  off?: string | undefined;
  type?: "button" | "submit";
  label?: string;
  icon?: keyof typeof ICONS;
}) {
  const refused = needs && !may(needs) ? S.roleNeeded(roleFor(needs), session.value?.role ?? "") : off;
  // aria-disabled and not disabled: the reason can be reached by keyboard.
  return (
    <button
      type={type}
      class={`button ${kind}`}
      aria-disabled={refused ? "true" : undefined}
      title={refused ?? label}
      aria-label={label && refused ? `${label} – ${refused}` : label}
      onClick={(event) => {
        if (refused) {
          event.preventDefault();
          return;
        }
        onClick?.(event);
      }}
    >
      {icon ? <Icon name={icon} /> : null}
      {children}
      {refused ? <span class="sr"> – {refused}</span> : null}
    </button>
  );
}

export function Copy({ text, label }: { text: string; label?: string }) {
  const [done, setDone] = useState(false);
  const put = async () => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    setDone(true);
    setTimeout(() => setDone(false), 1500);
  };
  return (
    <button
      type="button"
      class="button quiet copy"
      onClick={put}
      aria-label={label ?? S.copy}
      title={label ?? S.copy}
    >
      <Icon name={done ? "good" : "copy"} />
      <span class="sr" role="status">
        {done ? S.copied : ""}
      </span>
    </button>
  );
}

/** A line for a shell, to be copied. */
export function CommandLine({ line, label }: { line: string; label?: string }) {
  return (
    <div class="command">
      {label ? <span class="command-label">{label}</span> : null}
      <code tabIndex={0} role="group" aria-label={label ?? S.commandLine}>
        {line}
      </code>
      <Copy text={line} />
    </div>
  );
}

export function Fault({ error, retry }: { error: ApiError; retry?: () => void }) {
  return (
    <div class="fault" role="alert">
      <Icon name="bad" />
      <div>
        <p>{error.kind === "connection" ? S.noAnswer : error.message}</p>
        {error.kind !== "connection" ? <p class="muted small">{S.errorKind(error.kind)}</p> : null}
      </div>
      {retry ? <Button onClick={retry}>{S.tryAgain}</Button> : null}
    </div>
  );
}

/** What an answer shows: the error in place, something while it is waited for, or its children. */
export function Shown<T>({
  of,
  children,
  needs,
}: {
  of: Answer<T>;
  children: (data: T) => ComponentChildren;
  needs?: string;
}) {
  if (needs && !may(needs))
    return <p class="empty">{S.roleNeeded(roleFor(needs), session.value?.role ?? "")}</p>;
  if (of.data !== undefined) return <>{children(of.data)}</>;
  if (of.error) return <Fault error={of.error} retry={of.reload} />;
  return <p class="empty waiting">{S.loading}</p>;
}

export function Failures({ failed }: { failed?: { kind?: string; message: string }[] | undefined }) {
  if (!failed?.length) return null;
  return (
    <>
      {failed.map((f) => (
        <Fault error={new ApiError(f.kind ?? "failed", f.message, 0)} key={f.message} />
      ))}
    </>
  );
}

export function Card({
  title,
  actions,
  children,
  level = 2,
  id,
}: {
  title?: ComponentChildren;
  actions?: ComponentChildren;
  children: ComponentChildren;
  level?: 2 | 3;
  id?: string;
}) {
  const Head = `h${level}` as "h2" | "h3";
  return (
    <section class="card" id={id}>
      {title !== undefined || actions ? (
        <header class="card-head">
          {title !== undefined ? <Head>{title}</Head> : <span />}
          {actions ? <div class="actions">{actions}</div> : null}
        </header>
      ) : null}
      {children}
    </section>
  );
}

/** How full something is. The number is beside it as text. */
export function Meter({ part, tone = "plain", label }: { part: number; tone?: Tone; label: string }) {
  const shown = Math.max(0, Math.min(1, part || 0));
  return (
    <div
      class={`meter ${tone}`}
      role="meter"
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={Math.round(shown * 100)}
    >
      <span style={{ width: `${shown * 100}%` }} />
    </div>
  );
}
export function Progress({ part, label }: { part: number; label: string }) {
  const shown = Math.max(0, Math.min(1, part || 0));
  return (
    <div
      class="meter progress"
      role="progressbar"
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={Math.round(shown * 100)}
    >
      <span style={{ width: `${shown * 100}%` }} />
    </div>
  );
}
export function fullness(part: number): Tone {
  return part >= 0.9 ? "bad" : part >= 0.8 ? "warn" : "plain";
}

export function Field({
  label,
  hint,
  children,
  error,
}: {
  label: string;
  hint?: ComponentChildren;
  error?: string | undefined;
  children: (id: string, described: string | undefined) => ComponentChildren;
}) {
  const id = useId();
  const about = hint || error ? `${id}-hint` : undefined;
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {children(id, about)}
      {about ? (
        <p class={error ? "hint wrong" : "hint"} id={about}>
          {error ?? hint}
        </p>
      ) : null}
    </div>
  );
}

export function TextField({
  label,
  value,
  set,
  hint,
  error,
  placeholder,
  type = "text",
  focus,
  list,
  multiline,
  autocomplete = "off",
}: {
  label: string;
  value: string;
  set: (value: string) => void;
  hint?: ComponentChildren;
  error?: string | undefined;
  placeholder?: string;
  type?: string;
  focus?: boolean;
  list?: string[];
  multiline?: number;
  autocomplete?: string;
}) {
  const listId = useId();
  const ref = useRef<HTMLInputElement & HTMLTextAreaElement>(null);
  useEffect(() => {
    if (focus) ref.current?.focus();
  }, []);
  return (
    <Field label={label} hint={hint} error={error}>
      {(id, described) =>
        multiline ? (
          <textarea
            id={id}
            ref={ref}
            rows={multiline}
            value={value}
            placeholder={placeholder}
            aria-describedby={described}
            aria-invalid={error ? "true" : undefined}
            spellcheck={false}
            onInput={(e) => set(e.currentTarget.value)}
          />
        ) : (
          <>
            <input
              id={id}
              ref={ref}
              type={type}
              value={value}
              placeholder={placeholder}
              aria-describedby={described}
              aria-invalid={error ? "true" : undefined}
              autocomplete={autocomplete as "off"}
              autocapitalize="off"
              spellcheck={false}
              list={list ? listId : undefined}
              onInput={(e) => set(e.currentTarget.value)}
            />
            {list ? (
              <datalist id={listId}>
                {list.map((v) => (
                  <option value={v} key={v} />
                ))}
              </datalist>
            ) : null}
          </>
        )
      }
    </Field>
  );
}

export function Choice<T extends string>({
  label,
  value,
  set,
  options,
  hint,
}: {
  label: string;
  value: T;
  set: (value: T) => void;
  options: readonly (readonly [T, string])[];
  hint?: ComponentChildren;
}) {
  return (
    <Field label={label} hint={hint}>
      {(id, described) => (
        <select
          id={id}
          value={value}
          aria-describedby={described}
          onChange={(e) => set(e.currentTarget.value as T)}
        >
          {options.map(([v, text]) => (
            <option value={v} key={v}>
              {text}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}

export function Check({
  label,
  value,
  set,
  hint,
}: {
  label: ComponentChildren;
  value: boolean;
  set: (value: boolean) => void;
  hint?: ComponentChildren;
}) {
  const id = useId();
  return (
    <div class="check">
      <input
        type="checkbox"
        id={id}
        checked={value}
        aria-describedby={hint ? `${id}-hint` : undefined}
        onChange={(e) => set(e.currentTarget.checked)}
      />
      <div>
        <label for={id}>{label}</label>
        {hint ? (
          <p class="hint" id={`${id}-hint`}>
            {hint}
          </p>
        ) : null}
      </div>
    </div>
  );
}

export function Tabs({
  tabs,
  now,
  href,
}: {
  tabs: readonly (readonly [string, string])[];
  now: string;
  href: (id: string) => string;
}) {
  const nav = useRef<HTMLElement>(null);
  // Where there are more than fit, the one that is shown is among those that are seen.
  useEffect(() => {
    const box = nav.current;
    const mine = box?.querySelector<HTMLElement>("[aria-current]");
    if (box && mine)
      box.scrollLeft = mine.offsetLeft - box.offsetLeft - (box.clientWidth - mine.offsetWidth) / 2;
  }, [now]);
  return (
    <nav class="tabs" aria-label={S.sections} ref={nav}>
      {tabs.map(([id, text]) => (
        <a key={id} href={href(id)} aria-current={id === now ? "page" : undefined}>
          {text}
        </a>
      ))}
    </nav>
  );
}

export function Facts({
  of,
}: {
  of: (readonly [ComponentChildren, ComponentChildren] | undefined | false)[];
}) {
  return (
    <dl class="facts">
      {of.map((fact, i) =>
        fact ? (
          <div key={i}>
            <dt>{fact[0]}</dt>
            <dd>{fact[1]}</dd>
          </div>
        ) : null,
      )}
    </dl>
  );
}

/** A table that may be wider than the screen: it scrolls by itself, by keyboard too. */
export function Table({
  head,
  children,
  label,
}: {
  head: ComponentChildren;
  children: ComponentChildren;
  label: string;
}) {
  return (
    <div class="table-box" tabIndex={0} role="group" aria-label={label}>
      <table>
        <thead>
          <tr>{head}</tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  );
}

/** A list of any length: only the rows that can be seen are in the page. */
export function Virtual<T>({
  rows,
  row,
  head,
  label,
  kind,
  height = 34,
  most = 620,
  keyOf,
  end,
}: {
  rows: readonly T[];
  row: (item: T, index: number) => ComponentChildren;
  head?: ComponentChildren;
  label: string;
  kind: string;
  height?: number;
  most?: number;
  keyOf: (item: T) => string;
  /** Called when the end of the rows comes into view. */
  end?: (() => void) | undefined;
}) {
  const box = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [seen, setSeen] = useState(most);
  useEffect(() => {
    const el = box.current;
    if (!el) return undefined;
    const measure = () => setSeen(el.clientHeight || most);
    const watch = new ResizeObserver(measure);
    watch.observe(el);
    return () => watch.disconnect();
  }, []);
  const first = Math.max(0, Math.floor(top / height) - 8);
  const last = Math.min(rows.length, Math.ceil((top + seen) / height) + 8);
  const atEnd = last >= rows.length;
  useEffect(() => {
    if (atEnd) end?.();
  }, [atEnd, rows.length]);
  return (
    <div class={`virtual ${kind}`} role="table" aria-label={label} aria-rowcount={rows.length + 1}>
      {head ? (
        <div class="v-row v-head" role="row" aria-rowindex={1}>
          {head}
        </div>
      ) : null}
      <div
        class="v-box"
        ref={box}
        tabIndex={0}
        role="rowgroup"
        style={{ maxHeight: `min(${most}px, 72vh)` }}
        onScroll={(e) => setTop(e.currentTarget.scrollTop)}
      >
        <div class="v-all" role="presentation" style={{ height: `${rows.length * height}px` }}>
          {rows.slice(first, last).map((item, i) => (
            <div
              class="v-row"
              role="row"
              aria-rowindex={first + i + 2}
              key={keyOf(item)}
              style={{ top: `${(first + i) * height}px`, height: `${height}px` }}
            >
              {row(item, first + i)}
            </div>
          ))}
        </div>
      </div>
    </div>
  );
}
export function Cell({
  children,
  kind = "",
  head,
  title,
}: {
  children?: ComponentChildren;
  kind?: string;
  head?: boolean;
  title?: string;
}) {
  return (
    <div class={`v-cell ${kind}`} role={head ? "columnheader" : "cell"} title={title}>
      {children}
    </div>
  );
}

export function SizeOf({ bytes }: { bytes: number | string | null | undefined }) {
  return <span class="num">{size(bytes)}</span>;
}
export type Nodes = JSX.Element | null;

/** A short name of a path; the whole of it is in the title. */
export function Empty({ children, actions }: { children: ComponentChildren; actions?: ComponentChildren }) {
  return (
    <div class="empty">
      <p>{children}</p>
      {actions ? <div class="actions">{actions}</div> : null}
    </div>
  );
}
