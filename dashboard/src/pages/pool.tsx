// One pool: how it is, and its tabs.
import { useState } from "preact/hooks";
import { type Schemas } from "../api/client";
import * as deeds from "../deeds";
import { ago, size, when } from "../format";
import { concerns, jobs, type Status } from "../health";
import { DeedButton, DeedDialog, openDialog } from "../parts/deed";
import {
  Badge,
  Button,
  Card,
  Check,
  Empty,
  Facts,
  Failures,
  fullness,
  Icon,
  Meter,
  Shown,
  State,
  Tabs,
} from "../parts/ui";
import { useQuery } from "../query";
import { route, to } from "../route";
import { arrived, pools } from "../state";
import { S } from "../strings";
import { ConcernRow, JobRow, statusNews } from "./overview";
import { Devices } from "./pool/devices";
import { Properties } from "./pool/properties";
import { Damaged, History } from "./pool/history";

const TABS = [
  ["devices", S.pool.tabs.devices],
  ["damaged", S.pool.tabs.damaged],
  ["properties", S.pool.tabs.properties],
  ["history", S.pool.tabs.history],
] as const;

export function PoolPage() {
  const name = route.value.name;
  const tab = route.value.query.get("tab") ?? "devices";
  const status = useQuery(
    "pool-status",
    { pools: [name], files: tab === "damaged" },
    { every: 3000, on: statusNews },
  );
  const schedule = useQuery("scrub-schedules", { pools: [name] }, { on: statusNews });
  if (arrived.value && !pools.value.has(name) && !status.data?.entries.length)
    return (
      <>
        <h1>{name}</h1>
        <Card>
          <Empty
            actions={
              <a class="button" href={to("import-pool")}>
                {S.nav.import}
              </a>
            }
          >
            {S.pool.notOpen(name)}
          </Empty>
        </Card>
      </>
    );
  return (
    <Shown of={status}>
      {(answer) => {
        const pool = answer.entries[0];
        if (!pool) return <Failures failed={answer.failed} />;
        return (
          <>
            <Head status={pool} />
            <Concerns status={pool} schedule={schedule.data?.entries[0]} />
            <Tabs tabs={TABS} now={tab} href={(id) => to("pool", name, { tab: id })} />
            {tab === "damaged" ? (
              <Damaged status={pool} />
            ) : tab === "properties" ? (
              <Properties pool={name} />
            ) : tab === "history" ? (
              <History pool={name} />
            ) : (
              <Devices status={pool} schedule={schedule} />
            )}
          </>
        );
      }}
    </Shown>
  );
}

function Head({ status }: { status: Status }) {
  const pool = pools.value.get(status.name);
  const space = status.vdevs.space;
  const all = space?.size ?? 0;
  const used = pool?.allocated ?? space?.allocated ?? 0;
  return (
    <>
      <div class="page-head">
        <h1>{status.name}</h1>
        {pool?.suspended ? <Badge tone="bad">{S.suspended}</Badge> : <State state={status.state} />}
        <div class="actions">
          <a class="button" href={to("datasets", status.name)}>
            {S.nav.datasets}
          </a>
          <a class="button" href={to("performance", status.name)}>
            {S.nav.performance}
          </a>
          <MoreDeeds status={status} />
        </div>
      </div>
      <Card>
        <Meter
          part={all ? used / all : 0}
          tone={fullness(all ? used / all : 0)}
          label={S.overview.usedOf(status.name)}
        />
        <Facts
          of={[
            [S.pool.used, S.pool.usedOf(size(used), size(all))],
            [S.pool.free, size(Math.max(0, all - used))],
            pool?.freeing ? [S.pool.freeing, size(pool.freeing)] : false,
            [
              S.pool.fragmentation,
              space?.fragmentation === null || space?.fragmentation === undefined
                ? "–"
                : `${space.fragmentation}%`,
            ],
            space?.expandable ? [S.pool.expandable, size(space.expandable)] : false,
            [S.pool.lastScan, lastScan(status)],
            status.checkpoint
              ? [
                  S.pool.checkpoint,
                  S.pool.checkpointOf(when(status.checkpoint.start_time), size(status.checkpoint.space)),
                ]
              : false,
            [S.pool.txg, String(status.txg)],
          ]}
        />
      </Card>
    </>
  );
}

function lastScan(status: Status): string {
  const scan = status.scan;
  if (!scan || scan.kind === "none") return S.pool.never;
  const kind = S.job.scan[scan.kind] ?? scan.kind;
  if (scan.state === "running") return S.pool.scanRuns(kind, ago(scan.start_time));
  return S.pool.scanEnded(kind, scan.state, ago(scan.end_time), size(scan.processed), scan.errors);
}

function MoreDeeds({ status }: { status: Status }) {
  const pool = status.name;
  return (
    <>
      {status.checkpoint ? (
        <DeedButton
          label={S.pool.discard}
          text={S.pool.discardText}
          deed={() => deeds.checkpoint(pool, true)}
          off={status.checkpoint.discarding ? S.pool.discarding : undefined}
        />
      ) : (
        <DeedButton
          label={S.pool.takeCheckpoint}
          text={S.pool.checkpointText}
          deed={() => deeds.checkpoint(pool, false)}
        />
      )}
      <Button needs="pool-export" onClick={() => openDialog(<Export pool={pool} />)}>
        {S.pool.export}
      </Button>
      <Button needs="pool-destroy" kind="remove" onClick={() => openDialog(<Destroy pool={pool} />)}>
        {S.pool.destroy}
      </Button>
    </>
  );
}
function Export({ pool }: { pool: string }) {
  const [force, setForce] = useState(false);
  return (
    <DeedDialog
      title={S.pool.exportTitle(pool)}
      verb={S.pool.exportVerb}
      deed={deeds.exportPool(pool, force)}
      typed={pool}
      danger
    >
      <p>{S.pool.exportText}</p>
      <Check label={S.force} hint={S.pool.exportForce} value={force} set={setForce} />
    </DeedDialog>
  );
}
function Destroy({ pool }: { pool: string }) {
  const [force, setForce] = useState(false);
  return (
    <DeedDialog
      title={S.pool.destroyTitle(pool)}
      verb={S.pool.destroyVerb}
      deed={deeds.destroyPool(pool, force)}
      typed={pool}
      danger
    >
      <div class="warning">
        <Icon name="warn" />
        <p>{S.pool.destroyText(pools.value.get(pool)?.datasets.size ?? 0)}</p>
      </div>
      <Check label={S.force} hint={S.pool.exportForce} value={force} set={setForce} />
    </DeedDialog>
  );
}

function Concerns({ status, schedule }: { status: Status; schedule: Schemas["ScrubSchedule"] | undefined }) {
  const list = concerns(status, pools.value.get(status.name)?.suspended ?? false, schedule);
  const going = jobs(status);
  if (!list.length && !going.length) return null;
  return (
    <div class={list.length && going.length ? "columns" : ""}>
      {list.length ? (
        <Card title={S.overview.attention}>
          <ul class="rows">
            {list.map((c) => (
              <ConcernRow key={c.key} concern={c} />
            ))}
          </ul>
        </Card>
      ) : null}
      {going.length ? (
        <Card title={S.overview.goesOn}>
          <ul class="rows">
            {going.map((j) => (
              <JobRow key={j.key} job={j} />
            ))}
          </ul>
        </Card>
      ) : null}
    </div>
  );
}
