// One filesystem or volume: its tabs. Snapshots have a page of their own.
import { base } from "../format";
import { openDialog } from "../parts/deed";
import { Badge, Button, Empty, Failures, Kind, Shown, Tabs } from "../parts/ui";
import { useQuery } from "../query";
import { route, to } from "../route";
import { S } from "../strings";
import { Create, datasetNews, valueOf, type Entry } from "./datasets";
import { Files } from "./files";
import { Space } from "./dataset/space";
import { Take, Rename, DestroyDataset } from "./dataset/deeds";
import { Properties } from "./dataset/properties";
import { Snapshots } from "./dataset/snapshots";
import { SnapshotPage } from "./dataset/snapshot";
import { People } from "./dataset/people";
import { Permissions } from "./dataset/permissions";
import { Transfer } from "./dataset/transfer";
import { Schedule } from "./dataset/schedule";
import { Encryption } from "./dataset/encryption";
import { Sharing } from "./dataset/sharing";

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
    ["transfer", S.dataset.tabs.transfer],
    ...(volume ? [] : [["users", S.dataset.tabs.users] as const]),
    ["permissions", S.dataset.tabs.permissions],
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
      ) : tab === "transfer" ? (
        <Transfer entry={entry} />
      ) : tab === "users" && !volume ? (
        <People name={name} />
      ) : tab === "permissions" ? (
        <Permissions name={name} />
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
