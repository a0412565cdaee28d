// The one dialog for all that is done: what will happen, the command line that does the same, the name typed where
// it is dangerous, progress, and errors where they were made. What was typed stays when something fails.
import { signal } from "@preact/signals";
import type { ComponentChildren, VNode } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, ask, type Action, type ReplyOf, type RequestOf } from "../api/client";
import type { Deed } from "../deeds";
import { done as tellDone } from "../state";
import { S } from "../strings";
import { Button, CommandLine, Failures, Fault, Icon, TextField } from "./ui";

const shown = signal<{ id: number; content: VNode } | null>(null);
let counted = 0;
export function openDialog(content: VNode) {
  counted += 1;
  shown.value = { id: counted, content };
}
export function closeDialog() {
  shown.value = null;
}

interface Note {
  id: number;
  text: string;
  tone: "good" | "warn";
}
const notes = signal<Note[]>([]);
export function note(text: string, tone: Note["tone"] = "good") {
  counted += 1;
  const id = counted;
  notes.value = [...notes.value.slice(-3), { id, text, tone }];
  setTimeout(() => drop(id), tone === "good" ? 6000 : 20_000);
}
const drop = (id: number) => {
  notes.value = notes.value.filter((n) => n.id !== id);
};

export function Notes() {
  return (
    <div class="notes" role="status" aria-live="polite">
      {notes.value.map((n) => (
        <div class={`note ${n.tone}`} key={n.id}>
          <Icon name={n.tone} />
          <span>{n.text}</span>
          <button type="button" class="button quiet" aria-label={S.close} onClick={() => drop(n.id)}>
            <Icon name="bad" />
          </button>
        </div>
      ))}
    </div>
  );
}

export function Dialogs() {
  const now = shown.value;
  return now ? (
    <Modal key={now.id} close={closeDialog}>
      {now.content}
    </Modal>
  ) : null;
}

export function Modal({ children, close }: { children: ComponentChildren; close?: () => void }) {
  const ref = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const el = ref.current;
    const before = document.activeElement as HTMLElement | null;
    if (el && !el.open) el.showModal();
    return () => {
      if (el?.open) el.close();
      before?.focus?.();
    };
  }, []);
  return (
    <dialog
      ref={ref}
      aria-labelledby="dialog-title"
      onCancel={(e) => {
        e.preventDefault();
        close?.();
      }}
    >
      {children}
    </dialog>
  );
}

/** Problems that a reply names although the request as a whole was done. */
function complaints(reply: unknown): { failed: { kind?: string; message: string }[]; warnings: string[] } {
  const said = (reply ?? {}) as {
    failed?: { kind?: string; message: string }[];
    warnings?: string[];
    remarks?: string[];
  };
  return { failed: said.failed ?? [], warnings: [...(said.warnings ?? []), ...(said.remarks ?? [])] };
}

/** A dialog around a deed. `deed` is what the form says now; nothing where something is missing (`missing`). */
export function DeedDialog({
  title,
  children,
  deed,
  missing,
  verb,
  danger,
  typed,
  done,
  said,
  more,
}: {
  title: string;
  children?: ComponentChildren;
  deed: Deed;
  missing?: string | undefined;
  verb: string;
  danger?: boolean;
  /** The name that must be typed. */
  typed?: string;
  done?: (reply: unknown) => void;
  /** What is said when it is done. */
  said?: string | undefined;
  /** Where one request does not do all: the next one, and how far it is. */
  more?: (reply: unknown) => { deed: Deed; told: string } | undefined;
}) {
  const [told, setTold] = useState("");
  const [error, setError] = useState<ApiError | undefined>();
  const [failed, setFailed] = useState<{ kind?: string; message: string }[]>([]);
  const [running, setRunning] = useState<AbortController | undefined>();
  const [name, setName] = useState("");
  const unconfirmed = typed !== undefined && name !== typed ? S.typeName(typed) : undefined;
  const go = async () => {
    if (missing || unconfirmed || running) return;
    const mine = new AbortController();
    setRunning(mine);
    setError(undefined);
    setFailed([]);
    try {
      const request = (d: Deed) => ask(d.action as Action, d.request as RequestOf<Action>, mine.signal);
      let reply = await request(deed);
      for (let next = more?.(reply); next; next = more?.(reply)) {
        setTold(next.told);
        reply = await request(next.deed);
      }
      const { failed, warnings } = complaints(reply as ReplyOf<Action>);
      for (const warning of warnings) note(warning, "warn");
      if (failed.length) {
        setFailed(failed);
        setRunning(undefined);
        return;
      }
      tellDone();
      note(said ?? S.done(title));
      closeDialog();
      done?.(reply);
    } catch (caught) {
      setRunning(undefined);
      if (mine.signal.aborted) return;
      setError(caught instanceof ApiError ? caught : new ApiError("failed", String(caught), 0));
    }
  };
  return (
    <form
      class="deed"
      method="dialog"
      onSubmit={(e) => {
        e.preventDefault();
        void go();
      }}
    >
      <h2 id="dialog-title">{title}</h2>
      <div class="deed-body">
        {children}
        {typed !== undefined ? (
          <TextField label={S.typeName(typed)} value={name} set={setName} focus={!children} />
        ) : null}
        <CommandLine line={deed.line} label={S.sameAs} />
        {error ? <Fault error={error} /> : null}
        <Failures failed={failed} />
      </div>
      <footer>
        {running ? (
          <>
            <span class="working" role="status">
              {told || S.working}
            </span>
            <Button onClick={() => running.abort()}>{S.stopWaiting}</Button>
          </>
        ) : (
          <Button onClick={closeDialog}>{S.cancel}</Button>
        )}
        <Button
          type="submit"
          kind={danger ? "danger" : "main"}
          needs={deed.action}
          off={missing ?? unconfirmed ?? (running ? S.working : undefined)}
        >
          {verb}
        </Button>
      </footer>
    </form>
  );
}

/** A button that opens the dialog of a deed without fields. */
export function DeedButton({
  label,
  title,
  text,
  deed,
  danger,
  typed,
  kind = "",
  off,
  done,
  said,
}: {
  label: string;
  title?: string;
  text: ComponentChildren;
  deed: () => Deed;
  danger?: boolean;
  typed?: string;
  kind?: "" | "main" | "danger" | "quiet" | "remove";
  off?: string | undefined;
  done?: (reply: unknown) => void;
  said?: string;
}) {
  return (
    <Button
      kind={kind}
      needs={deed().action}
      off={off}
      onClick={() =>
        openDialog(
          <DeedDialog
            title={title ?? label.replace(/ …$/, "")}
            deed={deed()}
            verb={label.replace(/ …$/, "")}
            {...(danger ? { danger } : {})}
            {...(typed !== undefined ? { typed } : {})}
            {...(done ? { done } : {})}
            {...(said ? { said } : {})}
          >
            <p>{text}</p>
          </DeedDialog>,
        )
      }
    >
      {label}
    </Button>
  );
}
