// Files of a filesystem or a snapshot, a page at a time, and bringing back single ones.
import type { ReplyOf, Schemas } from "../api/client";
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, ask } from "../api/client";
import * as deeds from "../deeds";
import { size, when } from "../format";
import { DeedDialog, note, openDialog } from "../parts/deed";
import { Button, Card, Cell, Check, Choice, Empty, Fault, Icon, TextField, Virtual } from "../parts/ui";
import { may, roleFor, session } from "../state";
import { S } from "../strings";

type FileEntry = Schemas["FileEntry"];

const join = (folder: string, name: string) => `${folder === "/" ? "" : folder}/${name}`;

export function Files({ dataset, mountpoint }: { dataset: string; mountpoint: string }) {
  const snapshot = dataset.includes("@");
  const [path, setPath] = useState("/");
  const [entries, setEntries] = useState<FileEntry[]>([]);
  const [next, setNext] = useState<string | null>(null);
  const [error, setError] = useState<ApiError | undefined>();
  const [busy, setBusy] = useState(true);
  const [round, setRound] = useState(0);
  const load = async (after: string | null, before: FileEntry[], signal: AbortSignal) => {
    setBusy(true);
    setError(undefined);
    try {
      const list = await ask(
        "file-list",
        { dataset, path, ...(after ? { after } : {}), limit: 1000 },
        signal,
      );
      const all = [...before, ...list.entries];
      all.sort(
        (a, b) =>
          Number(b.kind === "directory") - Number(a.kind === "directory") || a.name.localeCompare(b.name),
      );
      setEntries(all);
      setNext(list.next ?? null);
    } catch (caught) {
      if (signal.aborted) return;
      setError(caught instanceof ApiError ? caught : new ApiError("failed", String(caught), 0));
    }
    setBusy(false);
  };
  useEffect(() => {
    if (!may("file-list")) return undefined;
    const mine = new AbortController();
    setEntries([]);
    setNext(null);
    void load(null, [], mine.signal);
    return () => mine.abort();
  }, [dataset, path, round]);
  if (!may("file-list"))
    return (
      <Card title={S.files.title}>
        <p class="empty">{S.roleNeeded(roleFor("file-list"), session.value?.role ?? "")}</p>
      </Card>
    );
  const parts = path.split("/").filter(Boolean);
  return (
    <Card title={S.files.title}>
      <nav class="crumbs" aria-label={S.files.folder}>
        <button type="button" class="link" onClick={() => setPath("/")}>
          {S.files.root}
        </button>
        {parts.map((part, i) => (
          <span key={i}>
            {"/ "}
            <button type="button" class="link" onClick={() => setPath(`/${parts.slice(0, i + 1).join("/")}`)}>
              {part}
            </button>
          </span>
        ))}
      </nav>
      {error ? <Fault error={error} retry={() => setRound(round + 1)} /> : null}
      {entries.length ? (
        <Virtual
          rows={entries}
          kind="cols-files"
          label={S.files.title}
          keyOf={(e) => e.name}
          row={(e) => (
            <>
              <Cell kind="row" title={e.name}>
                <Icon name={e.kind === "directory" ? "dataset" : "log"} />
                {e.kind === "directory" && e.is_exact !== false ? (
                  <button type="button" class="link ellipsis" onClick={() => setPath(join(path, e.name))}>
                    {e.name}
                  </button>
                ) : (
                  <span class="ellipsis">{e.name}</span>
                )}
              </Cell>
              <Cell kind="num">{e.kind === "directory" ? "" : size(e.size)}</Cell>
              <Cell kind="wide muted num-left">{when(e.modified)}</Cell>
              <Cell>
                {snapshot && (e.kind === "file" || e.kind === "symlink" || e.kind === "directory") ? (
                  <Button
                    needs="file-restore"
                    kind="quiet"
                    off={e.is_exact === false ? S.files.strange : undefined}
                    label={S.files.restoreOf(e.name)}
                    onClick={() =>
                      openDialog(
                        <Restore
                          snapshot={dataset}
                          path={join(path, e.name)}
                          mountpoint={mountpoint}
                          folder={e.kind === "directory"}
                        />,
                      )
                    }
                  >
                    {S.files.restore}
                  </Button>
                ) : null}
              </Cell>
            </>
          )}
        />
      ) : busy ? (
        <p class="empty waiting">{S.loading}</p>
      ) : error ? null : (
        <Empty>{S.files.none}</Empty>
      )}
      {next ? (
        <p class="actions">
          <Button
            off={busy ? S.working : undefined}
            onClick={() => void load(next, entries, new AbortController().signal)}
          >
            {S.files.more}
          </Button>
        </p>
      ) : null}
    </Card>
  );
}

function Restore({
  snapshot,
  path,
  mountpoint,
  folder,
}: {
  snapshot: string;
  path: string;
  mountpoint: string;
  folder: boolean;
}) {
  const [target, setTarget] = useState(path);
  const [there, setThere] = useState<"refuse" | "keep" | "overwrite">("refuse");
  const sum = useRef({ files: 0, kept: 0, passed: 0 });
  const deed = (after?: string) =>
    deeds.restoreFile(
      snapshot,
      path,
      target,
      folder ? there : there === "keep" ? "refuse" : there,
      mountpoint,
      after,
    );
  return (
    <DeedDialog
      title={S.files.restoreOf(path)}
      verb={S.files.restoreVerb}
      deed={deed()}
      missing={target ? undefined : S.datasets.nameIt}
      said={S.files.restored(target)}
      more={(reply) => {
        const part = reply as ReplyOf<"file-restore"> | null;
        sum.current.files += part?.files ?? 0;
        sum.current.kept += part?.kept ?? 0;
        sum.current.passed += part?.passed_over ?? 0;
        return part?.next
          ? { deed: deed(part.next), told: S.files.restoredSoFar(sum.current.files) }
          : undefined;
      }}
      done={() => {
        const { files, kept, passed } = sum.current;
        if (folder) note(S.files.restoredAll(files, kept, passed), passed ? "warn" : "good");
      }}
    >
      <p>{folder ? S.files.restoreFolderText : S.files.restoreText}</p>
      <TextField label={S.files.to} value={target} set={setTarget} focus />
      {folder ? (
        <Choice label={S.files.there} value={there} set={setThere} options={S.files.thereOptions} />
      ) : (
        <Check
          label={S.files.overwrite}
          value={there === "overwrite"}
          set={(on) => setThere(on ? "overwrite" : "refuse")}
        />
      )}
    </DeedDialog>
  );
}
