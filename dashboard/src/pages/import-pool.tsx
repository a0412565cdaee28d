// Pools that could be imported.
import { useState } from "preact/hooks";
import type { Schemas } from "../api/client";
import * as deeds from "../deeds";
import { when } from "../format";
import { leaves, named } from "../health";
import { DeedDialog, openDialog } from "../parts/deed";
import { Badge, Button, Card, Check, CommandLine, Shown, State, TextField } from "../parts/ui";
import { useQuery } from "../query";
import { go } from "../route";
import { S } from "../strings";
import { commandLine } from "../format";

export function ImportPool() {
  const [typed, setTyped] = useState("");
  const [search, setSearch] = useState<string[]>([]);
  const [destroyed, setDestroyed] = useState(false);
  const found = useQuery(
    "pool-discover",
    { search, destroyed },
    { on: (n) => n.what === "closed" || n.what === "opened" },
  );
  const look = () => {
    const next = typed.split(/[\s,]+/).filter(Boolean);
    if (next.join() === search.join()) found.reload();
    else setSearch(next);
  };
  return (
    <>
      <h1>{S.nav.import}</h1>
      <Card title={S.import.where}>
        <form
          class="add-path"
          onSubmit={(e) => {
            e.preventDefault();
            look();
          }}
        >
          <TextField
            label={S.import.folders}
            value={typed}
            set={setTyped}
            hint={S.import.foldersHint}
            placeholder="/dev/disk/by-id"
          />
          <Button type="submit" needs="pool-discover">
            {S.import.look}
          </Button>
        </form>
        <Check label={S.import.destroyed} value={destroyed} set={setDestroyed} />
        <CommandLine
          line={`cenote ${commandLine(["zpool", "import", ...(destroyed ? ["-D"] : []), ...search.flatMap((d) => ["-d", d])])}`}
        />
      </Card>
      <Shown of={found} needs="pool-discover">
        {(list) =>
          list.length ? (
            <>
              {list.map((p) => (
                <Found key={String(p.guid)} pool={p} search={search} />
              ))}
            </>
          ) : (
            <Card>
              <p class="empty">{S.import.none}</p>
            </Card>
          )
        }
      </Shown>
    </>
  );
}

function Found({ pool, search }: { pool: Schemas["ImportablePool"]; search: string[] }) {
  const disks = leaves(pool.vdevs);
  return (
    <Card
      title={
        <>
          {pool.name} <State state={pool.state} />{" "}
          {pool.destroyed ? <Badge tone="warn">{S.import.wasDestroyed}</Badge> : null}
        </>
      }
      actions={
        <Button
          needs="pool-import"
          kind="main"
          onClick={() => openDialog(<Import pool={pool} search={search} />)}
        >
          {S.import.import}
        </Button>
      }
    >
      <p class="muted small">
        {S.import.about(String(pool.guid), pool.hostname ?? "", when(pool.timestamp))}
        {pool.exported ? "" : ` ${S.import.notExported}`}
      </p>
      {pool.unknown_features.length ? <p>{S.import.features(pool.unknown_features.join(", "))}</p> : null}
      {S.reason[pool.reason] ? <p>{S.reason[pool.reason]}</p> : null}
      <ul class="small">
        {disks.map((d) => (
          <li key={String(d.guid)}>
            <State state={d.state} /> <code>{named(d)}</code>
          </li>
        ))}
      </ul>
    </Card>
  );
}

function Import({ pool, search }: { pool: Schemas["ImportablePool"]; search: string[] }) {
  const [newName, setNewName] = useState("");
  const [altroot, setAltroot] = useState("");
  const [force, setForce] = useState(false);
  const [readOnly, setReadOnly] = useState(false);
  const [loadKeys, setLoadKeys] = useState(false);
  const twice = pool.duplicates.length > 0;
  return (
    <DeedDialog
      title={S.import.title(pool.name)}
      verb={S.import.verb}
      deed={deeds.importPool({
        pool: twice ? String(pool.guid) : pool.name,
        newName,
        search,
        force,
        readOnly,
        loadKeys,
        destroyed: pool.destroyed,
        altroot,
      })}
      done={() => go("pool", newName || pool.name)}
    >
      <p>{S.import.text}</p>
      <div class="fields">
        <TextField label={S.import.newName} value={newName} set={setNewName} placeholder={pool.name} />
        <TextField label={S.create.altroot} value={altroot} set={setAltroot} hint={S.create.altrootText} />
      </div>
      <Check label={S.import.readOnly} hint={S.import.readOnlyText} value={readOnly} set={setReadOnly} />
      <Check label={S.import.loadKeys} value={loadKeys} set={setLoadKeys} />
      <Check label={S.force} hint={S.import.force} value={force} set={setForce} />
    </DeedDialog>
  );
}
