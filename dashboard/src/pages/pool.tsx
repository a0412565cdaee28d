// One pool: its devices as a picture, scrubs, damaged files, history, properties.
import { useEffect, useState } from "preact/hooks";
import type { Schemas } from "../api/client";
import * as deeds from "../deeds";
import type { Layout, ScanDeed, VdevClass } from "../deeds";
import { ago, commandLine, count, rate, size, when } from "../format";
import { concerns, errorsOf, jobs, leaves, named, short, type Status, type Vdev } from "../health";
import { DeedButton, DeedDialog, openDialog } from "../parts/deed";
import { DiskChoice, type Picked } from "../parts/disks";
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
  fullness,
  Icon,
  Meter,
  Shown,
  State,
  Table,
  Tabs,
  TextField,
  Virtual,
} from "../parts/ui";
import { useQuery, type Answer } from "../query";
import { route, to } from "../route";
import { arrived, pools } from "../state";
import { S } from "../strings";
import { ConcernRow, JobRow, statusNews } from "./overview";

const TABS = [
  ["devices", S.pool.tabs.devices],
  ["damaged", S.pool.tabs.damaged],
  ["properties", S.pool.tabs.properties],
  ["history", S.pool.tabs.history],
] as const;

type Rates = Map<string, { read: number; write: number; latency: number; busy: number }>;

/** Rates of devices: the differences of two answers. */
export function useRates(pool: string): { rates: Rates; whole: { read: number; write: number } } {
  const io = useQuery("pool-iostat", { pools: [pool] }, { every: 2000 });
  const [before, setBefore] = useState<{ at: number; entry: Schemas["PoolIo"] } | undefined>();
  const [rates, setRates] = useState<{ rates: Rates; whole: { read: number; write: number } }>({
    rates: new Map(),
    whole: { read: 0, write: 0 },
  });
  useEffect(() => {
    const entry = io.data?.entries[0];
    if (!entry) return;
    if (before && io.at > before.at && Number(entry.age_ns) > Number(before.entry.age_ns)) {
      const seconds = (Number(entry.age_ns) - Number(before.entry.age_ns)) / 1e9;
      const next: Rates = new Map();
      const old = new Map(before.entry.counters.map((c) => [String(c.guid), c]));
      for (const now of entry.counters) {
        const was = old.get(String(now.guid));
        if (!was) continue;
        const ops = now.read.operations + now.write.operations - was.read.operations - was.write.operations;
        const ns =
          Number(now.read.total_ns) +
          Number(now.write.total_ns) -
          Number(was.read.total_ns) -
          Number(was.write.total_ns);
        next.set(String(now.guid), {
          read:
            (now.read.bytes + (now.scrub?.bytes ?? 0) - was.read.bytes - (was.scrub?.bytes ?? 0)) / seconds,
          write:
            (now.write.bytes +
              (now.sync_write?.bytes ?? 0) -
              was.write.bytes -
              (was.sync_write?.bytes ?? 0)) /
            seconds,
          latency: ops > 0 ? ns / ops : 0,
          busy: ops / seconds,
        });
      }
      const whole = { read: 0, write: 0 };
      for (const top of entry.vdevs.children) {
        const of = next.get(String(top.guid));
        whole.read += of?.read ?? 0;
        whole.write += of?.write ?? 0;
      }
      setRates({ rates: next, whole });
    }
    setBefore({ at: io.at, entry });
  }, [io.at]);
  return rates;
}

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

// Devices

const CLASSES = ["normal", "special", "dedup", "log", "l2cache", "spare"] as const;

function Devices({ status, schedule }: { status: Status; schedule: Answer<Schemas["Listed4"]> }) {
  const pool = status.name;
  const { rates, whole } = useRates(pool);
  const chosen = route.value.query.get("device");
  const wanted = route.value.query.get("do");
  const all = leaves(status.vdevs);
  const device = all.find((v) => String(v.guid) === chosen);
  useEffect(() => {
    if (wanted === "replace" && device) openDialog(<Attach pool={pool} device={device} replace />);
    else if (wanted === "add") openDialog(<Add pool={pool} />);
    if (wanted) location.replace(to("pool", pool, { tab: "devices", ...(chosen ? { device: chosen } : {}) }));
  }, [wanted]);
  const scanning = status.scan?.state === "running";
  const paused = scanning && Boolean(status.scan?.paused_time);
  const planned = schedule.data?.entries[0];
  return (
    <>
      <Card
        title={S.pool.tabs.devices}
        actions={
          <>
            <span class="muted small num">{S.pool.rates(rate(whole.read), rate(whole.write))}</span>
            <Button needs="pool-add" onClick={() => openDialog(<Add pool={pool} />)}>
              {S.pool.add}
            </Button>
          </>
        }
      >
        <div class="vdevs">
          {CLASSES.map((kind) => {
            const tops = status.vdevs.children.filter((v) => v.class === kind);
            return tops.length ? (
              <section key={kind} class="vdev-class" aria-label={S.pool.classes[kind]}>
                {kind === "normal" ? null : <h3>{S.pool.classes[kind]}</h3>}
                <div class="vdev-tops">
                  {tops.map((top) => (
                    <Group key={String(top.guid)} pool={pool} vdev={top} rates={rates} chosen={chosen} />
                  ))}
                </div>
              </section>
            ) : null;
          })}
        </div>
        {device ? (
          <DevicePanel pool={pool} status={status} device={device} rates={rates} />
        ) : (
          <p class="hint">{S.pool.choose}</p>
        )}
      </Card>
      <Card title={S.pool.care}>
        <div class="actions">
          {scanning && status.scan?.kind === "scrub" ? (
            paused ? (
              <ScanButton pool={pool} what="scrub" label={S.pool.resumeScrub} text={S.pool.resumeText} />
            ) : (
              <ScanButton pool={pool} what="pause" label={S.pool.pauseScrub} text={S.pool.pauseText} />
            )
          ) : (
            <Button needs="pool-scan" kind="main" onClick={() => openDialog(<Scrub pool={pool} />)}>
              {S.pool.scrub}
            </Button>
          )}
          {scanning && status.scan?.kind === "scrub" ? (
            <ScanButton pool={pool} what="stop" label={S.pool.stopScrub} text={S.pool.stopText} />
          ) : null}
          <ScanButton pool={pool} what="resilver" label={S.pool.resilver} text={S.pool.resilverText} />
          <DeedButton label={S.pool.clearAll} text={S.pool.clearAllText} deed={() => deeds.clear(pool)} />
          <DeedButton
            label={S.pool.trim}
            text={S.pool.trimText}
            deed={() => deeds.sweep(pool, "trim", "start")}
          />
          <DeedButton
            label={S.pool.initialize}
            text={S.pool.initializeText}
            deed={() => deeds.sweep(pool, "initialize", "start")}
          />
          <DeedButton label={S.pool.reopen} text={S.pool.reopenText} deed={() => deeds.reopenPool(pool)} />
        </div>
        <p class="split">
          <span class="muted">
            {planned?.schedule
              ? S.pool.scheduled(planned.schedule, planned.next ? ago(planned.next) : "–")
              : S.pool.unscheduled}
          </span>
          <Button
            needs="scrub-schedule-set"
            onClick={() => openDialog(<Schedule pool={pool} now={planned?.schedule ?? "off"} />)}
          >
            {S.pool.schedule}
          </Button>
        </p>
      </Card>
    </>
  );
}

function ScanButton({
  pool,
  what,
  label,
  text,
}: {
  pool: string;
  what: ScanDeed;
  label: string;
  text: string;
}) {
  return <DeedButton label={label} text={text} deed={() => deeds.scan(pool, what)} />;
}

function Scrub({ pool }: { pool: string }) {
  const [what, setWhat] = useState<ScanDeed>("scrub");
  return (
    <DeedDialog title={S.pool.scrubTitle(pool)} verb={S.pool.scrubVerb} deed={deeds.scan(pool, what)}>
      <p>{S.pool.scrubText}</p>
      <Choice
        label={S.pool.scrubWhat}
        value={what}
        set={setWhat}
        options={[
          ["scrub", S.pool.scrubAll],
          ["scrub-new", S.pool.scrubNew],
          ["scrub-errors", S.pool.scrubErrors],
        ]}
      />
    </DeedDialog>
  );
}
function Schedule({ pool, now }: { pool: string; now: string }) {
  const [value, setValue] = useState(now);
  return (
    <DeedDialog title={S.pool.scheduleTitle(pool)} verb={S.set} deed={deeds.scrubSchedule(pool, value)}>
      <TextField
        label={S.pool.howOften}
        value={value}
        set={setValue}
        list={["daily", "weekly", "monthly", "10d", "off"]}
        hint={S.pool.howOftenHint}
      />
    </DeedDialog>
  );
}

function Group({
  pool,
  vdev,
  rates,
  chosen,
}: {
  pool: string;
  vdev: Vdev;
  rates: Rates;
  chosen: string | null;
}) {
  if (!vdev.children.length) return <Disk pool={pool} vdev={vdev} rates={rates} chosen={chosen} />;
  const of = rates.get(String(vdev.guid));
  const space = vdev.space;
  return (
    <div class="vdev-group">
      <p class="vdev-head">
        <strong>{vdev.name}</strong>
        <State state={vdev.state} {...(S.aux[vdev.aux] ? { title: S.aux[vdev.aux] as string } : {})} />
        {space?.size ? (
          <span class="muted small num">{S.pool.usedOf(size(space.allocated), size(space.size))}</span>
        ) : null}
        {of ? <span class="muted small num">{S.pool.rates(rate(of.read), rate(of.write))}</span> : null}
      </p>
      <div class="vdev-tops">
        {vdev.children.map((child) => (
          <Group key={String(child.guid)} pool={pool} vdev={child} rates={rates} chosen={chosen} />
        ))}
      </div>
    </div>
  );
}

function Disk({
  pool,
  vdev,
  rates,
  chosen,
}: {
  pool: string;
  vdev: Vdev;
  rates: Rates;
  chosen: string | null;
}) {
  const of = rates.get(String(vdev.guid));
  const guid = String(vdev.guid);
  const now = chosen === guid;
  const errors = errorsOf(vdev);
  const tone =
    vdev.state === "ONLINE"
      ? errors
        ? "warn"
        : "good"
      : vdev.state === "OFFLINE" || vdev.state === "DEGRADED"
        ? "warn"
        : "bad";
  return (
    <a
      class={`disk ${tone}`}
      href={to("pool", pool, { tab: "devices", ...(now ? {} : { device: guid }) })}
      aria-current={now ? "true" : undefined}
      title={named(vdev)}
    >
      <span class="disk-name">
        <Icon name="disk" />
        <span class="ellipsis">{short(vdev)}</span>
      </span>
      <State
        state={
          vdev.class === "spare"
            ? vdev.aux === "spared" || vdev.in_use_by
              ? "INUSE"
              : vdev.state === "ONLINE"
                ? "AVAIL"
                : vdev.state
            : vdev.state
        }
      />
      {vdev.awaits_resilver ? <Badge tone="warn">{S.pool.resilvering}</Badge> : null}
      <span class={errors ? "disk-errors some num" : "disk-errors num"}>
        {S.pool.errors(vdev.read_errors, vdev.write_errors, vdev.checksum_errors)}
      </span>
      <span class="muted small num">
        {[
          vdev.device_bytes ? size(vdev.device_bytes) : "",
          of && vdev.state !== "OFFLINE" ? S.pool.rates(rate(of.read), rate(of.write)) : "",
        ]
          .filter(Boolean)
          .join(" · ")}
      </span>
    </a>
  );
}

function parentOf(vdev: Vdev, guid: string): Vdev | undefined {
  for (const child of vdev.children) {
    if (String(child.guid) === guid) return vdev;
    const found = parentOf(child, guid);
    if (found) return found;
  }
  return undefined;
}

function DevicePanel({
  pool,
  status,
  device,
  rates,
}: {
  pool: string;
  status: Status;
  device: Vdev;
  rates: Rates;
}) {
  const parent = parentOf(status.vdevs, String(device.guid));
  const inMirror = parent?.kind === "mirror" || parent?.kind === "replacing" || parent?.kind === "spare";
  const top = parent?.kind === "root";
  const removable = device.class === "spare" || device.class === "l2cache" || device.class === "log";
  const of = rates.get(String(device.guid));
  const who = named(device);
  const sweeping = status.sweeps?.some((s) => String(s.guid) === String(device.guid) && s.state === "active");
  return (
    <section class="device-panel" aria-label={S.pool.deviceOf(short(device))}>
      <div class="page-head">
        <h3>{short(device)}</h3>
        <State state={device.state} />
        <a class="button quiet" href={to("pool", pool, { tab: "devices" })}>
          {S.close}
        </a>
      </div>
      <Facts
        of={[
          [S.pool.path, device.path ?? device.name],
          ["GUID", String(device.guid)],
          [S.size, size(device.device_bytes)],
          [S.pool.errorsHead, S.pool.errors(device.read_errors, device.write_errors, device.checksum_errors)],
          device.self_healed ? [S.pool.healed, count(device.self_healed)] : false,
          device.slow_ios ? [S.pool.slow, count(device.slow_ios)] : false,
          [S.pool.rate, of ? S.pool.rates(rate(of.read), rate(of.write)) : "–"],
          S.aux[device.aux] ? [S.state, S.aux[device.aux]] : false,
          device.modelled ? [S.pool.modelled, device.modelled] : false,
        ]}
      />
      <div class="actions">
        {device.class !== "spare" && device.class !== "l2cache" ? (
          <>
            {device.state === "ONLINE" || device.state === "DEGRADED" ? (
              <Button
                needs="device-offline"
                off={
                  inMirror || parent?.kind === "raidz" || parent?.kind === "draid" ? undefined : S.pool.noCopy
                }
                onClick={() => openDialog(<Offline pool={pool} device={device} />)}
              >
                {S.pool.offline}
              </Button>
            ) : (
              <DeedButton
                label={S.concern.online}
                text={S.concern.onlineText(short(device))}
                deed={() => deeds.online(pool, who)}
                kind="main"
              />
            )}
            <Button
              needs="device-attach"
              onClick={() => openDialog(<Attach pool={pool} device={device} replace />)}
            >
              {S.concern.replace}
            </Button>
            <Button
              needs="device-attach"
              off={top || parent?.kind === "mirror" ? undefined : S.pool.attachWhere}
              onClick={() => openDialog(<Attach pool={pool} device={device} />)}
            >
              {S.pool.attach}
            </Button>
            <DeedButton
              label={S.pool.detach}
              text={S.pool.detachText(short(device))}
              deed={() => deeds.detach(pool, who)}
              typed={short(device)}
              danger
              kind=""
              off={inMirror ? undefined : S.pool.detachWhere}
            />
          </>
        ) : null}
        {removable ? (
          <DeedButton
            label={S.pool.remove}
            text={S.pool.removeText(short(device))}
            deed={() => deeds.removeDevice(pool, who)}
            typed={short(device)}
            danger
            kind=""
          />
        ) : null}
        <DeedButton
          label={S.concern.clear}
          text={S.concern.clearText(short(device))}
          deed={() => deeds.clear(pool, who)}
        />
        <DeedButton
          label={S.pool.trim}
          text={S.pool.trimText}
          deed={() => deeds.sweep(pool, "trim", "start", [who])}
          off={sweeping ? S.pool.alreadySweeping : device.cannot_trim ? S.pool.cannotTrim : undefined}
        />
        <DeedButton
          label={S.pool.expand}
          text={S.pool.expandText}
          deed={() => deeds.online(pool, who, true)}
        />
      </div>
    </section>
  );
}

function Offline({ pool, device }: { pool: string; device: Vdev }) {
  const [temporary, setTemporary] = useState(false);
  return (
    <DeedDialog
      title={S.pool.offlineTitle(short(device))}
      verb={S.pool.offlineVerb}
      deed={deeds.offline(pool, named(device), temporary)}
    >
      <p>{S.pool.offlineText}</p>
      <Check label={S.pool.temporary} value={temporary} set={setTemporary} />
    </DeedDialog>
  );
}

function Attach({ pool, device, replace }: { pool: string; device: Vdev; replace?: boolean }) {
  const [picked, setPicked] = useState<Picked[]>([]);
  const [force, setForce] = useState(false);
  const [same, setSame] = useState(false);
  const fresh = same ? "" : (picked[0]?.path ?? "");
  const name = short(device);
  const used = picked[0]?.inUse;
  return (
    <DeedDialog
      title={replace ? S.pool.replaceTitle(name) : S.pool.attachTitle(name)}
      verb={replace ? S.pool.replaceVerb : S.pool.attachVerb}
      deed={deeds.attach(
        pool,
        named(device),
        fresh || (same ? "" : S.pool.newDevice),
        replace ?? false,
        force,
      )}
      missing={same || fresh ? undefined : S.pool.chooseDisk}
    >
      <p>{replace ? S.pool.replaceText(name) : S.pool.attachText(name)}</p>
      {replace ? (
        <Check label={S.pool.sameplace} hint={S.pool.sameplaceHint} value={same} set={setSame} />
      ) : null}
      {same ? null : <DiskChoice picked={picked} set={setPicked} one least={device.required_bytes ?? 0} />}
      {used ? (
        <div class="warning">
          <Icon name="warn" />
          <p>{S.disks.willBeLost(picked[0]?.path ?? "", used)}</p>
        </div>
      ) : null}
      <Check label={S.force} hint={S.pool.forceDisk} value={force} set={setForce} />
    </DeedDialog>
  );
}

function Add({ pool }: { pool: string }) {
  const [kind, setKind] = useState<VdevClass>("data");
  const [layout, setLayout] = useState<Layout>("mirror");
  const [picked, setPicked] = useState<Picked[]>([]);
  const [force, setForce] = useState(false);
  const plain = kind === "spare" || kind === "cache";
  const least = plain ? 1 : { stripe: 1, mirror: 2, mirrors: 2, raidz1: 2, raidz2: 3, raidz3: 4 }[layout];
  const paths = picked.map((p) => p.path);
  return (
    <DeedDialog
      title={S.pool.addTitle(pool)}
      verb={S.pool.addVerb}
      deed={deeds.add(pool, layout, kind, paths.length ? paths : [S.pool.newDevice], force)}
      missing={picked.length < least ? S.pool.needsDisks(least) : undefined}
      typed={pool}
      danger
    >
      <Choice
        label={S.pool.addKind}
        value={kind}
        set={setKind}
        options={S.pool.addKinds}
        hint={S.pool.addKindText[kind]}
      />
      {plain ? null : (
        <Choice
          label={S.create.layout}
          value={layout}
          set={setLayout}
          options={(kind === "log" || kind === "special" || kind === "dedup"
            ? (["stripe", "mirror"] as const)
            : (["stripe", "mirror", "raidz1", "raidz2", "raidz3"] as const)
          ).map((l) => [l, S.create.layouts[l].name] as const)}
        />
      )}
      <DiskChoice picked={picked} set={setPicked} />
      <div class="warning">
        <Icon name="warn" />
        <p>
          {kind === "data" || kind === "special" || kind === "dedup"
            ? S.pool.addForever
            : S.pool.addRemovable}
        </p>
      </div>
      <Check label={S.force} hint={S.pool.forceDisk} value={force} set={setForce} />
    </DeedDialog>
  );
}

function Damaged({ status }: { status: Status }) {
  if (!status.error_count)
    return (
      <Card>
        <p class="empty good">
          <Icon name="good" /> {S.pool.noErrors}
        </p>
      </Card>
    );
  return (
    <Card title={S.pool.damagedTitle(status.error_count)}>
      <p class="muted">{S.pool.damagedText}</p>
      <Virtual
        rows={status.error_files}
        label={S.pool.tabs.damaged}
        kind="cols-one"
        keyOf={(f) => f}
        row={(file) => (
          <Cell title={file}>
            <code>{file}</code>
          </Cell>
        )}
      />
      <CommandLine line={`cenote ${commandLine(["zpool", "status", "-v", status.name])}`} />
    </Card>
  );
}

function Properties({ pool }: { pool: string }) {
  const listed = useQuery(
    "pool-list",
    { pools: [pool], properties: ["all"] },
    { on: (n) => n.what === "pool-set", every: 20_000 },
  );
  const [filter, setFilter] = useState("");
  return (
    <Card title={S.pool.tabs.properties}>
      <div class="filter">
        <TextField label={S.search} value={filter} set={setFilter} />
      </div>
      <Shown of={listed}>
        {(answer) => {
          const rows = (answer.entries[0]?.properties ?? []).filter((p) => p.name.includes(filter));
          return rows.length ? (
            <Table
              label={S.pool.tabs.properties}
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
                    {S.poolProperty[p.name] ? <p class="hint">{S.poolProperty[p.name]}</p> : null}
                  </td>
                  <td class="value">{p.value ?? "–"}</td>
                  <td class="wide muted">{S.sourceOf(p.source)}</td>
                  <td class="num">
                    {p.source !== "none" || p.name === "comment" ? (
                      <Button
                        needs="pool-set"
                        kind="quiet"
                        label={S.change(p.name)}
                        onClick={() =>
                          openDialog(<SetPool pool={pool} name={p.name} value={p.value ?? ""} />)
                        }
                      >
                        {S.set} …
                      </Button>
                    ) : null}
                  </td>
                </tr>
              ))}
            </Table>
          ) : (
            <p class="empty">{S.nothingFound}</p>
          );
        }}
      </Shown>
    </Card>
  );
}
function SetPool({ pool, name, value }: { pool: string; name: string; value: string }) {
  const [next, setNext] = useState(value === "-" ? "" : value);
  const feature = name.startsWith("feature@");
  return (
    <DeedDialog
      title={S.change(name)}
      verb={S.set}
      deed={deeds.setPool(pool, name, feature ? "enabled" : next)}
      {...(feature ? { typed: pool, danger: true } : {})}
    >
      {S.poolProperty[name] ? <p>{S.poolProperty[name]}</p> : null}
      {feature ? (
        <p>{S.pool.featureText}</p>
      ) : (
        <TextField label={S.value} value={next} set={setNext} focus list={S.values[name] ?? []} />
      )}
    </DeedDialog>
  );
}

function History({ pool }: { pool: string }) {
  const [internal, setInternal] = useState(false);
  const history = useQuery("pool-history", { pools: [pool], internal }, { every: 15_000 });
  const [filter, setFilter] = useState("");
  return (
    <Card title={S.pool.tabs.history}>
      <div class="fields">
        <TextField label={S.search} value={filter} set={setFilter} />
        <Check label={S.pool.internal} value={internal} set={setInternal} />
      </div>
      <Shown of={history} needs="pool-history">
        {(answer) => {
          const rows = (answer.entries[0]?.records ?? []).filter((r) => r.text.includes(filter)).reverse();
          return rows.length ? (
            <Virtual
              rows={rows.map((r, i) => ({ ...r, key: rows.length - i }))}
              label={S.pool.tabs.history}
              kind="cols-history"
              keyOf={(r) => String(r.key)}
              row={(r) => (
                <>
                  <Cell kind="muted num-left">{when(r.time)}</Cell>
                  <Cell title={r.text.trim()}>
                    <code>{r.text.trim()}</code>
                  </Cell>
                </>
              )}
            />
          ) : (
            <p class="empty">{S.nothingFound}</p>
          );
        }}
      </Shown>
      <CommandLine line={`cenote ${commandLine(["zpool", "history", ...(internal ? ["-i"] : []), pool])}`} />
    </Card>
  );
}
