// What is done to datasets and snapshots alike: taken, renamed, destroyed.
import { useEffect, useState } from "preact/hooks";
import { ApiError, ask, type Schemas } from "../../api/client";
import * as deeds from "../../deeds";
import { base, size } from "../../format";
import { DeedDialog } from "../../parts/deed";
import { Check, Fault, Icon, TextField } from "../../parts/ui";
import { go, route } from "../../route";
import { S } from "../../strings";
import { type Entry } from "../datasets";

export function Take({ name }: { name: string }) {
  const stamp = new Date().toISOString().slice(0, 16).replace("T", "_").replace(":", "-");
  const [tag, setTag] = useState(stamp);
  const [recursive, setRecursive] = useState(false);
  return (
    <DeedDialog
      title={S.dataset.takeTitle(name)}
      verb={S.dataset.takeVerb}
      deed={deeds.snapshot([`${name}@${tag}`], recursive)}
      missing={tag ? undefined : S.datasets.nameIt}
      said={S.dataset.taken(`${name}@${tag}`)}
    >
      <p>{S.dataset.takeText}</p>
      <TextField label={S.name} value={tag} set={setTag} focus />
      <Check label={S.dataset.recursive} value={recursive} set={setRecursive} />
    </DeedDialog>
  );
}
export function Rename({ name }: { name: string }) {
  const [next, setNext] = useState(name);
  const [parents, setParents] = useState(false);
  const [recursive, setRecursive] = useState(false);
  const snapshot = name.includes("@");
  return (
    <DeedDialog
      title={S.dataset.renameTitle(name)}
      verb={S.dataset.renameVerb}
      deed={deeds.renameDataset(name, next, { parents, recursive })}
      missing={next && next !== name ? undefined : S.dataset.newName}
      done={() => go("dataset", next)}
    >
      <p>{snapshot ? S.dataset.renameSnapshotText : S.dataset.renameText}</p>
      <TextField label={S.import.newName} value={next} set={setNext} focus />
      {snapshot ? (
        <Check label={S.dataset.recursive} value={recursive} set={setRecursive} />
      ) : (
        <Check label={S.datasets.parents} value={parents} set={setParents} />
      )}
    </DeedDialog>
  );
}

/** What a destroy would take along, asked of the daemon before anything is typed. */
function Preview({ name, recursive, clones }: { name: string; recursive: boolean; clones: boolean }) {
  const [said, setSaid] = useState<Schemas["Destroyed"] | ApiError | undefined>();
  useEffect(() => {
    const mine = new AbortController();
    const deed = deeds.destroyDataset(name, { recursive, clones, dryRun: true });
    ask("dataset-destroy", deed.request as never, mine.signal).then(setSaid, (error: unknown) => {
      if (error instanceof ApiError) setSaid(error);
    });
    return () => mine.abort();
  }, [name, recursive, clones]);
  if (!said) return <p class="muted">{S.loading}</p>;
  if (said instanceof ApiError) return <Fault error={said} />;
  const names = said.names ?? [];
  return (
    <div class="warning">
      <Icon name="warn" />
      <div>
        <p>
          {S.dataset.willGo(names.length)}
          {said.reclaimed_bytes !== null && said.reclaimed_bytes !== undefined
            ? ` ${S.dataset.willFree(size(said.reclaimed_bytes))}`
            : ""}
        </p>
        <ul class="short-list" tabIndex={0} aria-label={S.dataset.willGoLabel}>
          {names.slice(0, 50).map((n) => (
            <li key={n}>
              <code>{n}</code>
            </li>
          ))}
        </ul>
        {names.length > 50 ? <p>{S.dataset.andMore(names.length - 50)}</p> : null}
      </div>
    </div>
  );
}

export function DestroyDataset({ name, kind }: { name: string; kind: Entry["kind"] }) {
  const [recursive, setRecursive] = useState(false);
  const [clones, setClones] = useState(false);
  const [force, setForce] = useState(false);
  const snapshot = kind === "snapshot";
  const typed = snapshot ? name.slice(name.indexOf("@") + 1) : base(name);
  return (
    <DeedDialog
      title={S.dataset.destroyTitle(name)}
      verb={S.pool.destroyVerb}
      danger
      typed={typed}
      deed={deeds.destroyDataset(name, { recursive, clones, force })}
      done={() => {
        const up = snapshot ? (name.split("@")[0] ?? "") : name.slice(0, name.lastIndexOf("/"));
        if (route.value.name === name) go("dataset", up, snapshot ? { tab: "snapshots" } : {});
      }}
    >
      <Preview name={name} recursive={recursive} clones={clones} />
      <Check
        label={snapshot ? S.dataset.sameBelow : S.dataset.allBelow}
        value={recursive}
        set={setRecursive}
      />
      <Check label={S.dataset.clonesToo} value={clones} set={setClones} />
      <Check label={S.force} hint={S.dataset.destroyForce} value={force} set={setForce} />
    </DeedDialog>
  );
}
