// The devices of a pool as a picture, and its care.
import { useEffect, useState } from "preact/hooks";
import { type ReplyOf } from "../../api/client";
import * as deeds from "../../deeds";
import { type ScanDeed } from "../../deeds";
import { ago, duration, count, rate, size } from "../../format";
import { errorsOf, leaves, named, short, type Status, type Vdev } from "../../health";
import { DeedButton, DeedDialog, openDialog } from "../../parts/deed";
import { Badge, Button, Card, Choice, Facts, Icon, State, TextField } from "../../parts/ui";
import { type Answer } from "../../query";
import { route, to } from "../../route";
import { diskOf, useHealth, type Health } from "./smart";
import { S } from "../../strings";
import { Rates, useRates } from "./rates";
import { Offline, Attach, Add } from "./change";

const CLASSES = ["normal", "special", "dedup", "log", "l2cache", "spare"] as const;

export function Devices({
  status,
  schedule,
}: {
  status: Status;
  schedule: Answer<ReplyOf<"scrub-schedules">>;
}) {
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
  const health = useHealth();
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
                    <Group
                      key={String(top.guid)}
                      pool={pool}
                      vdev={top}
                      rates={rates}
                      chosen={chosen}
                      health={health}
                    />
                  ))}
                </div>
              </section>
            ) : null;
          })}
        </div>
        {device ? (
          <DevicePanel pool={pool} status={status} device={device} rates={rates} health={health} />
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
  health,
}: {
  pool: string;
  vdev: Vdev;
  rates: Rates;
  chosen: string | null;
  health: Health;
}) {
  if (!vdev.children.length)
    return <Disk pool={pool} vdev={vdev} rates={rates} chosen={chosen} health={health} />;
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
          <Group
            key={String(child.guid)}
            pool={pool}
            vdev={child}
            rates={rates}
            chosen={chosen}
            health={health}
          />
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
  health,
}: {
  pool: string;
  vdev: Vdev;
  rates: Rates;
  chosen: string | null;
  health: Health;
}) {
  const of = rates.get(String(vdev.guid));
  const guid = String(vdev.guid);
  const now = chosen === guid;
  const smart = diskOf(health, vdev)?.smart;
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
      {smart?.healthy === false ? <Badge tone="bad">{S.disks.failing}</Badge> : null}
      <span class={errors ? "disk-errors some num" : "disk-errors num"}>
        {S.pool.errors(vdev.read_errors, vdev.write_errors, vdev.checksum_errors)}
      </span>
      <span class="muted small num">
        {[
          vdev.device_bytes ? size(vdev.device_bytes) : "",
          typeof smart?.temperature === "number" ? S.disks.temperature(smart.temperature) : "",
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
  health,
}: {
  pool: string;
  status: Status;
  device: Vdev;
  rates: Rates;
  health: Health;
}) {
  const disk = diskOf(health, device);
  const smart = disk?.smart;
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
          disk?.model ? [S.pool.model, disk.model] : false,
          disk?.serial ? [S.pool.serial, disk.serial] : false,
          smart && (typeof smart.healthy === "boolean" || smart.fault)
            ? [
                S.pool.smart,
                typeof smart.healthy === "boolean" ? (
                  <Badge tone={smart.healthy ? "good" : "bad"}>
                    {smart.healthy ? S.pool.smartGood : S.pool.smartBad}
                  </Badge>
                ) : (
                  S.pool.smartOff(smart.fault ?? "")
                ),
              ]
            : false,
          typeof smart?.temperature === "number"
            ? [S.pool.temperature, S.disks.temperature(smart.temperature)]
            : false,
          typeof smart?.hours === "number" ? [S.pool.age, duration(smart.hours * 3600)] : false,
          typeof smart?.reallocated === "number"
            ? [
                S.pool.sectors,
                S.pool.sectorsOf(smart.reallocated, smart.pending ?? 0, smart.uncorrectable ?? 0),
              ]
            : false,
          typeof smart?.wear_percent === "number" ? [S.pool.wear, `${smart.wear_percent}%`] : false,
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
