// One filesystem, volume or snapshot: its space, properties, snapshots, schedule, keys and shares.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { ApiError, ask, lines, type Schemas } from "../api/client";
import * as deeds from "../deeds";
import { ago, base, commandLine, readSize, size, when } from "../format";
import { DeedButton, DeedDialog, openDialog } from "../parts/deed";
import {
  Badge,
  Button,
  Card,
  Cell,
  Check,
  Choice,
  CommandLine,
  Empty,
  Facts,
  Failures,
  Fault,
  Icon,
  Kind,
  Shown,
  Table,
  Tabs,
  TextField,
  Virtual,
} from "../parts/ui";
import { useQuery } from "../query";
import { go, route, to } from "../route";
import { S } from "../strings";
import { Create, datasetNews, numberOf, valueOf } from "./datasets";
import { Files } from "./files";
import { MendShares } from "./shares";

type Entry = Schemas["DatasetEntry"];

export function DatasetPage() {
  const name = route.value.name;
  const mine = useQuery(
    "dataset-list",
    { names: [name], depth: 0, properties: ["all"] },
    {
      every: 10_000,
      on: (n) =>
        datasetNews(n) &&
        (!n.name || n.name === name || n.name.startsWith(`${name}@`) || name.startsWith(`${n.name}/`)),
    },
  );
  return (
    <>
      <Crumbs name={name} />
      <Shown of={mine}>
        {(answer) => {
          const entry = answer.entries[0];
          if (!entry)
            return (
              <>
                <h1>{name}</h1>
                <Failures failed={answer.failed} />
                {!answer.failed.length ? <Empty>{S.datasets.gone}</Empty> : null}
              </>
            );
          return entry.kind === "snapshot" ? <SnapshotPage entry={entry} /> : <Whole entry={entry} />;
        }}
      </Shown>
    </>
  );
}

function Crumbs({ name }: { name: string }) {
  const [path = "", snapshot] = name.split("@");
  const parts = path.split("/");
  return (
    <nav class="crumbs" aria-label={S.datasets.path}>
      <a href={to("datasets")}>{S.nav.datasets}</a>
      {parts.map((part, i) => (
        <span key={i}>
          {" / "}
          <a href={to("dataset", parts.slice(0, i + 1).join("/"))}>{part}</a>
        </span>
      ))}
      {snapshot ? <span> @ {snapshot}</span> : null}
    </nav>
  );
}

function Whole({ entry }: { entry: Entry }) {
  const name = entry.name;
  const volume = entry.kind === "volume";
  const root = !name.includes("/");
  const encrypted = valueOf(entry, "encryption") !== "off" && valueOf(entry, "encryption") !== "–";
  const tabs: (readonly [string, string])[] = [
    ["space", S.dataset.tabs.space],
    ["snapshots", S.dataset.tabs.snapshots],
    ["properties", S.dataset.tabs.properties],
    ["schedule", S.dataset.tabs.schedule],
    ["share", S.dataset.tabs.share],
    ...(volume ? [] : [["files", S.dataset.tabs.files] as const]),
    ...(encrypted ? [["encryption", S.dataset.tabs.encryption] as const] : []),
  ];
  const tab = route.value.query.get("tab") ?? "space";
  return (
    <>
      <div class="page-head">
        <h1>{base(name)}</h1>
        <Kind>{volume ? S.dataset.volume : S.dataset.filesystem}</Kind>
        {valueOf(entry, "keystatus") === "unavailable" ? (
          <Badge tone="warn">{S.datasets.locked}</Badge>
        ) : null}
        <div class="actions">
          <Button needs="snapshot-create" kind="main" onClick={() => openDialog(<Take name={name} />)}>
            {S.dataset.take}
          </Button>
          {volume ? null : (
            <Button needs="dataset-create" onClick={() => openDialog(<Create above={name} />)}>
              {S.dataset.createBelow}
            </Button>
          )}
          <Button
            needs="dataset-rename"
            off={root ? S.dataset.rootNo : undefined}
            onClick={() => openDialog(<Rename name={name} />)}
          >
            {S.dataset.rename}
          </Button>
          <Button
            needs="dataset-destroy"
            kind="remove"
            off={root ? S.dataset.rootNoDestroy : undefined}
            onClick={() => openDialog(<DestroyDataset name={name} kind={entry.kind} />)}
          >
            {S.pool.destroy}
          </Button>
        </div>
      </div>
      <Tabs tabs={tabs} now={tab} href={(id) => to("dataset", name, { tab: id })} />
      {tab === "properties" ? (
        <Properties entry={entry} />
      ) : tab === "snapshots" ? (
        <Snapshots name={name} />
      ) : tab === "files" && !volume ? (
        <Files dataset={name} mountpoint={valueOf(entry, "mountpoint")} />
      ) : tab === "schedule" ? (
        <Schedule name={name} />
      ) : tab === "encryption" ? (
        <Encryption entry={entry} />
      ) : tab === "share" ? (
        <Sharing entry={entry} />
      ) : (
        <Space entry={entry} />
      )}
    </>
  );
}

const PARTS = ["usedbydataset", "usedbysnapshots", "usedbychildren", "usedbyrefreservation"] as const;

function Space({ entry }: { entry: Entry }) {
  const used = numberOf(entry, "used");
  const volume = entry.kind === "volume";
  const origin = valueOf(entry, "origin");
  const cloned = origin !== "–" && origin !== "-";
  return (
    <>
      <Card title={S.dataset.tabs.space}>
        <div class="shares" role="img" aria-label={S.dataset.spaceLabel}>
          {PARTS.map((p) => {
            const n = numberOf(entry, p);
            return n > 0 ? <span key={p} class={p} style={{ flexGrow: n / Math.max(1, used) }} /> : null;
          })}
        </div>
        <Facts
          of={[
            [S.datasets.used, valueOf(entry, "used")],
            [S.datasets.available, valueOf(entry, "available")],
            [S.datasets.referenced, valueOf(entry, "referenced")],
            ...PARTS.map(
              (p) =>
                [
                  <>
                    <span class={`key ${p}`} /> {S.dataset.parts[p]}
                  </>,
                  valueOf(entry, p),
                ] as const,
            ),
            [S.datasets.ratio, valueOf(entry, "compressratio")],
            volume
              ? [S.dataset.volsize, valueOf(entry, "volsize")]
              : [S.datasets.quota, valueOf(entry, "quota")],
            volume
              ? [S.datasets.block, valueOf(entry, "volblocksize")]
              : [S.datasets.record, valueOf(entry, "recordsize")],
            [S.dataset.creation, when(numberOf(entry, "creation"))],
            cloned ? [S.dataset.origin, <a href={to("dataset", origin)}>{origin}</a>] : false,
          ]}
        />
        <div class="actions">
          {volume ? (
            <>
              <Button
                needs="property-set"
                onClick={() =>
                  openDialog(
                    <SetProperty dataset={entry.name} name="volsize" value={valueOf(entry, "volsize")} />,
                  )
                }
              >
                {S.dataset.resize}
              </Button>
              <Button
                needs="volume-reshape"
                onClick={() => openDialog(<Reshape name={entry.name} now={valueOf(entry, "volblocksize")} />)}
              >
                {S.dataset.reshape}
              </Button>
            </>
          ) : (
            <Button
              needs="property-set"
              onClick={() =>
                openDialog(<SetProperty dataset={entry.name} name="quota" value={valueOf(entry, "quota")} />)
              }
            >
              {S.dataset.setQuota}
            </Button>
          )}
          {cloned ? (
            <DeedButton
              label={S.dataset.promote}
              text={S.dataset.promoteText(origin)}
              deed={() => deeds.promote(entry.name)}
            />
          ) : null}
        </div>
      </Card>
      {volume ? null : <MountCard entry={entry} />}
    </>
  );
}

function MountCard({ entry }: { entry: Entry }) {
  const mounted = valueOf(entry, "mounted") === "yes";
  return (
    <Card title={S.dataset.mount}>
      <Facts
        of={[
          [S.datasets.mountpoint, valueOf(entry, "mountpoint")],
          [S.dataset.mounted, <Badge tone={mounted ? "good" : "plain"}>{mounted ? S.yes : S.no}</Badge>],
          ["canmount", valueOf(entry, "canmount")],
          ["readonly", valueOf(entry, "readonly")],
        ]}
      />
      <div class="actions">
        {mounted ? (
          <Button needs="unmount" onClick={() => openDialog(<Unmount name={entry.name} />)}>
            {S.dataset.unmount}
          </Button>
        ) : (
          <DeedButton
            label={S.dataset.mountVerb}
            text={S.dataset.mountText(valueOf(entry, "mountpoint"))}
            deed={() => deeds.mount(entry.name)}
          />
        )}
        <Button
          needs="property-set"
          onClick={() =>
            openDialog(
              <SetProperty dataset={entry.name} name="mountpoint" value={valueOf(entry, "mountpoint")} />,
            )
          }
        >
          {S.dataset.setMountpoint}
        </Button>
      </div>
    </Card>
  );
}
function Unmount({ name }: { name: string }) {
  const [force, setForce] = useState(false);
  return (
    <DeedDialog
      title={S.dataset.unmountTitle(name)}
      verb={S.dataset.unmountVerb}
      deed={deeds.unmount(name, force)}
    >
      <p>{S.dataset.unmountText}</p>
      <Check label={S.force} hint={S.dataset.unmountForce} value={force} set={setForce} />
    </DeedDialog>
  );
}

function Take({ name }: { name: string }) {
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
function Rename({ name }: { name: string }) {
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

function DestroyDataset({ name, kind }: { name: string; kind: Entry["kind"] }) {
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

function Reshape({ name, now }: { name: string; now: string }) {
  const [block, setBlock] = useState("64K");
  const bytes = readSize(block);
  const [plan, setPlan] = useState<Schemas["ReshapePlan"] | ApiError | null>(null);
  useEffect(() => {
    const mine = new AbortController();
    setPlan(null);
    if (bytes)
      ask(
        "volume-reshape",
        { volume: name, action: "start", volblocksize: bytes, dry_run: true },
        mine.signal,
      ).then(
        (p) => setPlan((p as Schemas["ReshapePlan"]) ?? null),
        (error: unknown) => error instanceof ApiError && setPlan(error),
      );
    return () => mine.abort();
  }, [block]);
  return (
    <DeedDialog
      title={S.dataset.reshapeTitle(name)}
      verb={S.dataset.reshapeVerb}
      deed={deeds.reshape(name, "start", bytes ?? 0, block)}
      missing={plan instanceof ApiError ? plan.message : undefined}
    >
      <p>{S.dataset.reshapeText(now)}</p>
      <Choice
        label={S.datasets.block}
        value={block}
        set={setBlock}
        options={(S.values["volblocksize"] ?? []).map((v) => [v, v] as const)}
      />
      {plan instanceof ApiError ? (
        <Fault error={plan} />
      ) : plan ? (
        <Facts
          of={[
            [S.dataset.reshapeData, size(plan.data_bytes)],
            [S.dataset.reshapeNeeds, size(plan.needed_bytes)],
            [S.datasets.available, size(plan.available_bytes)],
          ]}
        />
      ) : (
        <p class="muted">{S.loading}</p>
      )}
    </DeedDialog>
  );
}

// Properties

function Properties({ entry }: { entry: Entry }) {
  const [filter, setFilter] = useState("");
  const [local, setLocal] = useState(false);
  const rows = entry.properties.filter(
    (p) => p.name.includes(filter) && (!local || p.source === "local" || p.source === "received"),
  );
  return (
    <Card
      title={S.dataset.tabs.properties}
      actions={
        <Button
          needs="property-set"
          onClick={() => openDialog(<SetProperty dataset={entry.name} name="" value="" />)}
        >
          {S.dataset.setAnother}
        </Button>
      }
    >
      <div class="tools">
        <TextField label={S.search} value={filter} set={setFilter} />
        <Check label={S.dataset.onlyLocal} value={local} set={setLocal} />
      </div>
      {rows.length ? (
        <Table
          label={S.dataset.tabs.properties}
          head={
            <>
              <th scope="col">{S.name}</th>
              <th scope="col">{S.value}</th>
              <th scope="col" class="wide">
                {S.source}
              </th>
              <th scope="col">
                <span class="sr">{S.actions}</span>
              </th>
            </>
          }
        >
          {rows.map((p) => (
            <tr key={p.name}>
              <td>
                <code>{p.name}</code>
                {S.zfsProperty[p.name] ? <p class="hint">{S.zfsProperty[p.name]}</p> : null}
              </td>
              <td class="value">
                {p.name === "creation" ? when(p.parsable) : (p.value ?? "–")}
                {p.received && p.source !== "received" ? (
                  <p class="hint">{S.dataset.received(p.received)}</p>
                ) : null}
              </td>
              <td class="wide muted">{S.sourceOf(p.source)}</td>
              <td>
                {p.source === "none" && !SETTABLE.has(p.name) ? null : (
                  <div class="actions end">
                    <Button
                      needs="property-set"
                      kind="quiet"
                      label={S.change(p.name)}
                      onClick={() =>
                        openDialog(<SetProperty dataset={entry.name} name={p.name} value={p.value ?? ""} />)
                      }
                    >
                      {S.set} …
                    </Button>
                    {p.source === "local" || p.source === "received" ? (
                      <Button
                        needs="property-inherit"
                        kind="quiet"
                        label={S.dataset.inheritOf(p.name)}
                        onClick={() =>
                          openDialog(
                            <Inherit dataset={entry.name} name={p.name} received={Boolean(p.received)} />,
                          )
                        }
                      >
                        {S.dataset.inherit}
                      </Button>
                    ) : null}
                  </div>
                )}
              </td>
            </tr>
          ))}
        </Table>
      ) : (
        <p class="empty">{S.nothingFound}</p>
      )}
      <CommandLine line={`cenote ${commandLine(["zfs", "get", "all", entry.name])}`} />
    </Card>
  );
}
const SETTABLE = new Set(["volsize"]);

function SetProperty({ dataset, name, value }: { dataset: string; name: string; value: string }) {
  const [property, setProperty] = useState(name);
  const [next, setNext] = useState(value === "–" || value === "-" ? "" : value);
  const choices = S.values[property];
  return (
    <DeedDialog
      title={name ? S.change(name) : S.dataset.setAnother}
      verb={S.set}
      deed={deeds.setProperty(dataset, property || "PROPERTY", next)}
      missing={property && next ? undefined : S.dataset.nameAndValue}
    >
      {name ? (
        S.zfsProperty[name] ? (
          <p>{S.zfsProperty[name]}</p>
        ) : null
      ) : (
        <TextField
          label={S.name}
          value={property}
          set={setProperty}
          focus
          list={Object.keys(S.zfsProperty)}
          hint={S.dataset.userProperty}
        />
      )}
      <TextField
        label={S.value}
        value={next}
        set={setNext}
        focus={Boolean(name)}
        {...(choices ? { list: choices, hint: S.dataset.choices(choices.join(", ")) } : {})}
      />
      {S.newOnly.includes(property) ? <p class="hint">{S.dataset.newOnly}</p> : null}
    </DeedDialog>
  );
}
function Inherit({ dataset, name, received }: { dataset: string; name: string; received: boolean }) {
  const [recursive, setRecursive] = useState(false);
  const [back, setBack] = useState(false);
  return (
    <DeedDialog
      title={S.dataset.inheritOf(name)}
      verb={S.dataset.inherit}
      deed={deeds.inherit(dataset, name, { recursive, received: back })}
    >
      <p>{S.dataset.inheritText}</p>
      <Check label={S.dataset.recursiveBelow} value={recursive} set={setRecursive} />
      {received ? <Check label={S.dataset.backToReceived} value={back} set={setBack} /> : null}
    </DeedDialog>
  );
}

// Snapshots

function Snapshots({ name }: { name: string }) {
  const [below, setBelow] = useState(false);
  const [filter, setFilter] = useState("");
  const [newest, setNewest] = useState(true);
  const [picked, setPicked] = useState<ReadonlySet<string>>(new Set());
  const listed = useQuery(
    "dataset-list",
    {
      names: [name],
      ...(below ? {} : { depth: 1 }),
      kinds: ["snapshot"],
      properties: ["used", "referenced", "creation", "userrefs"],
    },
    {
      every: 30_000,
      on: (n) =>
        (n.what === "created" || n.what === "destroyed" || n.what === "renamed") &&
        Boolean(n.name?.startsWith(name)),
    },
  );
  const rows = useMemo(() => {
    const all = (listed.data?.entries ?? []).filter((e) => e.name.includes(filter));
    all.sort((a, b) => (newest ? b.createtxg - a.createtxg : a.createtxg - b.createtxg));
    return all;
  }, [listed.data, filter, newest]);
  const mine = [...picked].filter((p) => rows.some((r) => r.name === p) && p.startsWith(`${name}@`));
  const toggle = (snapshot: string) => {
    const next = new Set(picked);
    if (!next.delete(snapshot)) next.add(snapshot);
    setPicked(next);
  };
  const several = `${name}@${mine.map((m) => m.slice(name.length + 1)).join(",")}`;
  return (
    <Card
      title={S.dataset.tabs.snapshots}
      actions={
        <Button
          needs="dataset-destroy"
          off={mine.length ? undefined : S.dataset.pickSome}
          onClick={() => openDialog(<DestroyDataset name={several} kind="snapshot" />)}
        >
          {S.dataset.destroyPicked(mine.length)}
        </Button>
      }
    >
      <div class="tools">
        <TextField label={S.search} value={filter} set={setFilter} />
        <Check label={S.dataset.withBelow} value={below} set={setBelow} />
        <Check label={S.dataset.newestFirst} value={newest} set={setNewest} />
        <span class="muted small num">{S.dataset.snapshotCount(rows.length)}</span>
      </div>
      <Shown of={listed}>
        {() =>
          rows.length ? (
            <Virtual
              rows={rows}
              kind="cols-snapshots"
              label={S.dataset.tabs.snapshots}
              keyOf={(e) => e.name}
              head={
                <>
                  <Cell head>
                    <span class="sr">{S.dataset.pick}</span>
                  </Cell>
                  <Cell head>{S.name}</Cell>
                  <Cell head kind="num">
                    {S.datasets.used}
                  </Cell>
                  <Cell head kind="num wide">
                    {S.datasets.referenced}
                  </Cell>
                  <Cell head kind="wide">
                    {S.dataset.creation}
                  </Cell>
                </>
              }
              row={(e) => {
                const own = e.name.startsWith(`${name}@`);
                return (
                  <>
                    <Cell>
                      {own ? (
                        <input
                          type="checkbox"
                          checked={picked.has(e.name)}
                          aria-label={S.dataset.pickOf(e.name)}
                          onChange={() => toggle(e.name)}
                        />
                      ) : null}
                    </Cell>
                    <Cell kind="row" title={e.name}>
                      <Icon name="camera" />
                      <a class="ellipsis" href={to("dataset", e.name)}>
                        {own ? e.name.slice(name.length) : e.name}
                      </a>
                      {numberOf(e, "userrefs") > 0 ? <Badge tone="info">{S.dataset.held}</Badge> : null}
                    </Cell>
                    <Cell kind="num">{valueOf(e, "used")}</Cell>
                    <Cell kind="num wide">{valueOf(e, "referenced")}</Cell>
                    <Cell kind="wide muted num-left">{when(numberOf(e, "creation"))}</Cell>
                  </>
                );
              }}
            />
          ) : (
            <Empty>{filter ? S.nothingFound : S.dataset.noSnapshots}</Empty>
          )
        }
      </Shown>
    </Card>
  );
}

function SnapshotPage({ entry }: { entry: Entry }) {
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

// Schedules, keys, shares

const KINDS = ["frequent", "hourly", "daily", "weekly", "monthly", "yearly"] as const;

function Schedule({ name }: { name: string }) {
  const listed = useQuery(
    "snapshot-schedules",
    { datasets: [name] },
    { every: 30_000, on: (n) => n.what === "set" || n.what === "created" },
  );
  return (
    <Card
      title={S.dataset.tabs.schedule}
      actions={
        <Button
          needs="property-set"
          onClick={() =>
            openDialog(
              <SetSchedule
                name={name}
                now={listed.data?.entries.find((e) => e.dataset === name)?.schedule ?? ""}
              />,
            )
          }
        >
          {S.pool.schedule}
        </Button>
      }
    >
      <p class="muted">{S.dataset.scheduleText}</p>
      <Shown of={listed}>
        {(answer) => {
          const own = answer.entries.find((e) => e.dataset === name);
          if (!own) return <Empty>{S.dataset.noSchedule}</Empty>;
          return (
            <>
              <Facts
                of={[
                  [S.value, own.schedule],
                  [S.source, S.sourceOf(own.source)],
                  own.idle ? [S.dataset.idle, own.idle] : false,
                ]}
              />
              <Table
                label={S.dataset.tabs.schedule}
                head={
                  <>
                    <th scope="col">{S.dataset.each}</th>
                    <th scope="col" class="num">
                      {S.dataset.keep}
                    </th>
                    <th scope="col" class="num">
                      {S.dataset.there}
                    </th>
                    <th scope="col">{S.dataset.newest}</th>
                  </>
                }
              >
                {own.kinds.map((k) => (
                  <tr key={k.kind}>
                    <td>{S.dataset.kinds[k.kind]}</td>
                    <td class="num">{k.keep}</td>
                    <td class="num">{k.there}</td>
                    <td>{k.newest ? ago(k.newest) : S.none}</td>
                  </tr>
                ))}
              </Table>
            </>
          );
        }}
      </Shown>
    </Card>
  );
}
function SetSchedule({ name, now }: { name: string; now: string }) {
  const given = new Map(now.split(",").map((p) => p.split("=") as [string, string | undefined]));
  const [keep, setKeep] = useState<Record<string, string>>(
    Object.fromEntries(KINDS.map((k) => [k, given.get(k) ?? ""])),
  );
  const [recursive, setRecursive] = useState(now ? given.has("recursive") : true);
  const parts = KINDS.filter((k) => Number(keep[k]) > 0).map((k) => `${k}=${Number(keep[k])}`);
  const value = parts.length ? [...parts, ...(recursive ? ["recursive"] : [])].join(",") : "off";
  return (
    <DeedDialog title={S.dataset.scheduleTitle(name)} verb={S.set} deed={deeds.snapshotSchedule(name, value)}>
      <p>{S.dataset.scheduleForm}</p>
      <div class="fields narrow">
        {KINDS.map((k) => (
          <TextField
            key={k}
            label={S.dataset.kinds[k]}
            type="number"
            value={keep[k] ?? ""}
            set={(v) => setKeep({ ...keep, [k]: v })}
            placeholder="0"
          />
        ))}
      </div>
      <Check label={S.dataset.recursive} value={recursive} set={setRecursive} />
    </DeedDialog>
  );
}

function Encryption({ entry }: { entry: Entry }) {
  const root = valueOf(entry, "encryptionroot");
  const available = valueOf(entry, "keystatus") === "available";
  return (
    <Card title={S.dataset.tabs.encryption}>
      <Facts
        of={[
          [S.dataset.cipher, valueOf(entry, "encryption")],
          [
            S.dataset.keyOf,
            root === entry.name ? (
              S.dataset.ownKey
            ) : (
              <a href={to("dataset", root, { tab: "encryption" })}>{root}</a>
            ),
          ],
          [S.dataset.keyFormat, valueOf(entry, "keyformat")],
          [S.dataset.keyLocation, valueOf(entry, "keylocation")],
          [
            S.dataset.key,
            <Badge tone={available ? "good" : "warn"}>
              {available ? S.dataset.loaded : S.dataset.notLoaded}
            </Badge>,
          ],
        ]}
      />
      <div class="actions">
        {available ? (
          <DeedButton
            label={S.dataset.unload}
            text={S.dataset.unloadText}
            deed={() => deeds.unloadKey(root)}
            typed={base(root)}
            danger
            kind=""
          />
        ) : (
          <Button
            needs="key-load"
            kind="main"
            onClick={() =>
              openDialog(<LoadKey name={root} prompt={valueOf(entry, "keylocation") === "prompt"} />)
            }
          >
            {S.concern.loadKey}
          </Button>
        )}
      </div>
    </Card>
  );
}
function LoadKey({ name, prompt }: { name: string; prompt: boolean }) {
  const [passphrase, setPassphrase] = useState("");
  return (
    <DeedDialog
      title={S.dataset.loadTitle(name)}
      verb={S.dataset.load}
      deed={deeds.loadKey(name, passphrase)}
      missing={prompt && !passphrase ? S.dataset.typeKey : undefined}
    >
      <p>{S.dataset.loadText}</p>
      <TextField
        label={S.dataset.keyField}
        type="password"
        value={passphrase}
        set={setPassphrase}
        focus
        autocomplete="current-password"
        hint={prompt ? undefined : S.dataset.keyFromLocation}
      />
    </DeedDialog>
  );
}

function Sharing({ entry }: { entry: Entry }) {
  if (entry.kind === "volume") return <MendShares volume={entry.name} />;
  const share = valueOf(entry, "sharenfs");
  return (
    <Card title={S.dataset.nfs}>
      <p class="muted">{S.dataset.nfsText}</p>
      <Facts
        of={[
          ["sharenfs", share],
          [S.datasets.mountpoint, valueOf(entry, "mountpoint")],
        ]}
      />
      <div class="actions">
        <Button
          needs="property-set"
          onClick={() =>
            openDialog(
              <SetProperty dataset={entry.name} name="sharenfs" value={share === "off" ? "on" : share} />,
            )
          }
        >
          {S.change("sharenfs")} …
        </Button>
        {share !== "off" ? (
          <>
            <DeedButton
              label={S.dataset.share}
              text={S.dataset.shareText}
              deed={() => deeds.share(entry.name)}
            />
            <DeedButton
              label={S.dataset.unshare}
              text={S.dataset.unshareText}
              deed={() => deeds.unshare(entry.name)}
            />
          </>
        ) : null}
        <a class="button" href={to("shares")}>
          {S.nav.shares}
        </a>
      </div>
    </Card>
  );
}
