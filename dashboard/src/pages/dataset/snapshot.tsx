// One snapshot: what it holds, and what changed since.
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, lines, type Schemas } from "../../api/client";
import * as deeds from "../../deeds";
import { ago, commandLine, when } from "../../format";
import { DeedButton, DeedDialog, openDialog } from "../../parts/deed";
import {
  Button,
  Card,
  Cell,
  Check,
  CommandLine,
  Facts,
  Fault,
  Icon,
  Kind,
  TextField,
  Virtual,
} from "../../parts/ui";
import { useQuery } from "../../query";
import { go, to } from "../../route";
import { S } from "../../strings";
import { numberOf, valueOf, type Entry } from "../datasets";
import { Files } from "../files";
import { Rename, DestroyDataset } from "./deeds";

export function SnapshotPage({ entry }: { entry: Entry }) {
  const name = entry.name;
  const [dataset = "", tag = ""] = name.split("@");
  const holds = useQuery("hold-list", { snapshots: [name] }, { every: 10_000 });
  const above = useQuery("dataset-list", { names: [dataset], depth: 0, properties: ["mountpoint"] });
  const clones = valueOf(entry, "clones");
  const volume = valueOf(entry, "volsize") !== "–";
  return (
    <>
      <div class="page-head">
        <h1>@{tag}</h1>
        <Kind>{S.dataset.snapshot}</Kind>
        <div class="actions">
          <Button needs="dataset-clone" onClick={() => openDialog(<Clone name={name} />)}>
            {S.dataset.clone}
          </Button>
          <Button needs="dataset-rollback" onClick={() => openDialog(<Rollback name={name} />)}>
            {S.dataset.rollback}
          </Button>
          <Button needs="snapshot-hold" onClick={() => openDialog(<HoldIt name={name} />)}>
            {S.dataset.hold}
          </Button>
          <Button needs="bookmark-create" onClick={() => openDialog(<Bookmark name={name} />)}>
            {S.dataset.bookmark}
          </Button>
          <Button needs="dataset-rename" onClick={() => openDialog(<Rename name={name} />)}>
            {S.dataset.rename}
          </Button>
          <Button
            needs="dataset-destroy"
            kind="remove"
            onClick={() => openDialog(<DestroyDataset name={name} kind="snapshot" />)}
          >
            {S.pool.destroy}
          </Button>
        </div>
      </div>
      <Card>
        <Facts
          of={[
            [S.dataset.of, <a href={to("dataset", dataset, { tab: "snapshots" })}>{dataset}</a>],
            [
              S.dataset.creation,
              `${when(numberOf(entry, "creation"))} (${ago(numberOf(entry, "creation"))})`,
            ],
            [S.dataset.snapshotUsed, valueOf(entry, "used")],
            [S.datasets.referenced, valueOf(entry, "referenced")],
            [S.dataset.written, valueOf(entry, "written")],
            clones !== "–" && clones !== "-" && clones ? [S.dataset.clones, clones] : false,
          ]}
        />
        {holds.data?.entries.length ? (
          <ul class="rows">
            {holds.data.entries.map((h) => (
              <li key={h.tag}>
                <Icon name="lock" />
                <span class="grow">
                  {S.dataset.heldBy(h.tag)} <span class="muted small">{when(h.time)}</span>
                </span>
                <DeedButton
                  label={S.dataset.release}
                  text={S.dataset.releaseText}
                  deed={() => deeds.hold(h.tag, [name], false, true)}
                  done={holds.reload}
                />
              </li>
            ))}
          </ul>
        ) : null}
      </Card>
      {volume ? null : (
        <>
          <Files dataset={name} mountpoint={valueOf(above.data?.entries[0], "mountpoint")} />
          <Diff name={name} />
        </>
      )}
    </>
  );
}

function Clone({ name }: { name: string }) {
  const [dataset = "", tag = ""] = name.split("@");
  const [target, setTarget] = useState(
    `${dataset.includes("/") ? dataset : `${dataset}/clone`}-${tag}`.replace(/[^A-Za-z0-9_.:/-]/g, "-"),
  );
  const [parents, setParents] = useState(false);
  return (
    <DeedDialog
      title={S.dataset.cloneTitle(name)}
      verb={S.dataset.cloneVerb}
      deed={deeds.clone(name, target, parents)}
      missing={target.includes("/") ? undefined : S.datasets.nameIt}
      done={() => go("dataset", target)}
    >
      <p>{S.dataset.cloneText}</p>
      <TextField label={S.import.newName} value={target} set={setTarget} focus />
      <Check label={S.datasets.parents} value={parents} set={setParents} />
    </DeedDialog>
  );
}
function Rollback({ name }: { name: string }) {
  const [later, setLater] = useState(false);
  const [clones, setClones] = useState(false);
  const [force, setForce] = useState(false);
  return (
    <DeedDialog
      title={S.dataset.rollbackTitle(name)}
      verb={S.dataset.rollbackVerb}
      danger
      typed={name.slice(name.indexOf("@") + 1)}
      deed={deeds.rollback(name, { later, clones, force })}
    >
      <div class="warning">
        <Icon name="warn" />
        <p>{S.dataset.rollbackText}</p>
      </div>
      <Check label={S.dataset.rollbackLater} value={later} set={setLater} />
      <Check label={S.dataset.rollbackClones} value={clones} set={setClones} />
      <Check label={S.force} hint={S.dataset.unmountForce} value={force} set={setForce} />
    </DeedDialog>
  );
}
function HoldIt({ name }: { name: string }) {
  const [tag, setTag] = useState("keep");
  const [recursive, setRecursive] = useState(false);
  return (
    <DeedDialog
      title={S.dataset.holdTitle(name)}
      verb={S.dataset.holdVerb}
      deed={deeds.hold(tag, [name], recursive, false)}
      missing={tag ? undefined : S.datasets.nameIt}
    >
      <p>{S.dataset.holdText}</p>
      <TextField label={S.dataset.tag} value={tag} set={setTag} focus />
      <Check label={S.dataset.sameBelow} value={recursive} set={setRecursive} />
    </DeedDialog>
  );
}
function Bookmark({ name }: { name: string }) {
  const [mark, setMark] = useState(name.replace("@", "#"));
  return (
    <DeedDialog
      title={S.dataset.bookmarkTitle(name)}
      verb={S.dataset.bookmarkVerb}
      deed={deeds.bookmark(name, mark)}
      missing={mark.includes("#") ? undefined : S.datasets.nameIt}
    >
      <p>{S.dataset.bookmarkText}</p>
      <TextField label={S.name} value={mark} set={setMark} focus />
    </DeedDialog>
  );
}

/** Differences come while they are found; the list can be stopped. */
function Diff({ name }: { name: string }) {
  const [rows, setRows] = useState<Schemas["FileChange"][]>([]);
  const [at, setAt] = useState<"idle" | "running" | "done" | "stopped">("idle");
  const [error, setError] = useState<ApiError | undefined>();
  const running = useRef<AbortController | undefined>(undefined);
  useEffect(() => () => running.current?.abort(), []);
  const start = async () => {
    const mine = new AbortController();
    running.current = mine;
    setRows([]);
    setError(undefined);
    setAt("running");
    const found: Schemas["FileChange"][] = [];
    let shown = 0;
    try {
      for await (const line of lines("diff", { from: name }, mine.signal)) {
        if (line === "complete") break;
        const part = line as {
          changes?: Schemas["FileChange"][];
          failed?: { kind: string; message: string };
          unreadable?: string;
        };
        if (part.failed) throw new ApiError(part.failed.kind, part.failed.message, 0);
        if (part.changes) found.push(...part.changes);
        if (Date.now() - shown > 200) {
          shown = Date.now();
          setRows([...found]);
        }
      }
      setAt("done");
    } catch (caught) {
      setAt("stopped");
      if (!mine.signal.aborted)
        setError(caught instanceof ApiError ? caught : new ApiError("failed", String(caught), 0));
    }
    setRows([...found]);
  };
  const text = (path: Schemas["FilePath"]) =>
    typeof path === "string" ? path : new TextDecoder().decode(new Uint8Array(path as number[]));
  const mark = { added: "+", removed: "−", modified: "M", renamed: "R" };
  return (
    <Card
      title={S.dataset.diff}
      actions={
        at === "running" ? (
          <Button onClick={() => running.current?.abort()}>{S.job.stop}</Button>
        ) : (
          <Button needs="diff" onClick={start}>
            {S.dataset.diffStart}
          </Button>
        )
      }
    >
      <p class="muted">{S.dataset.diffText}</p>
      {error ? <Fault error={error} /> : null}
      {at !== "idle" ? (
        <p class="small" role="status">
          {at === "running"
            ? S.dataset.diffRuns(rows.length)
            : at === "done"
              ? S.dataset.diffDone(rows.length)
              : S.dataset.diffStopped(rows.length)}
        </p>
      ) : null}
      {rows.length ? (
        <Virtual
          rows={rows.map((r, i) => ({ ...r, key: i }))}
          kind="cols-diff"
          label={S.dataset.diff}
          keyOf={(r) => String(r.key)}
          row={(r) => (
            <>
              <Cell kind={`mark ${r.kind}`} title={S.dataset.diffKinds[r.kind]}>
                <span aria-hidden="true">{mark[r.kind]}</span>
                <span class="sr">{S.dataset.diffKinds[r.kind]}</span>
              </Cell>
              <Cell title={text(r.path)}>
                <code>
                  {text(r.path)}
                  {r.new_path ? ` → ${text(r.new_path)}` : ""}
                </code>
              </Cell>
            </>
          )}
        />
      ) : null}
      <CommandLine line={`cenote ${commandLine(["zfs", "diff", "-F", name])}`} />
    </Card>
  );
}
