// All pools at a glance: health, space, what needs attention with what mends it, and what goes on.
import type { Schemas } from "../api/client";
import { concerns, jobs, type Concern, type Job, type Mend, type Status } from "../health";
import { duration, percent, size } from "../format";
import { DeedButton } from "../parts/deed";
import { Badge, Card, Empty, fullness, Icon, Meter, Progress, Shown, State } from "../parts/ui";
import { useQuery } from "../query";
import { to } from "../route";
import { arrived, may, pools, type News } from "../state";
import { S } from "../strings";

export const statusNews = (news: News) =>
  [
    "opened",
    "closed",
    "configured",
    "vdev-state",
    "job",
    "suspended",
    "resumed",
    "errors",
    "pool-set",
  ].includes(news.what);

export function Mends({ of }: { of: Mend[] }) {
  return (
    <div class="actions">
      {of.map((m) =>
        m.deed ? (
          <DeedButton key={m.label} label={m.label} text={m.text} deed={m.deed} />
        ) : (
          <a key={m.label} class="button" href={to(m.href!.page, m.href!.name, m.href!.query)}>
            {m.label}
          </a>
        ),
      )}
    </div>
  );
}

export function ConcernRow({ concern, withPool }: { concern: Concern; withPool?: boolean }) {
  return (
    <li class={`concern ${concern.tone}`}>
      <Icon name={concern.tone} />
      <div class="grow">
        <p>
          {withPool ? (
            <>
              <a href={to("pool", concern.pool)}>{concern.pool}</a>
              {": "}
            </>
          ) : null}
          {concern.text}
        </p>
        {concern.detail ? <p class="muted small">{concern.detail}</p> : null}
      </div>
      <Mends of={concern.mends} />
    </li>
  );
}

export function JobRow({ job, withPool }: { job: Job; withPool?: boolean }) {
  return (
    <li class="job">
      <div class="grow">
        <p>
          {withPool ? (
            <>
              <a href={to("pool", job.pool)}>{job.pool}</a>
              {": "}
            </>
          ) : null}
          <strong>{job.text}</strong>
          {job.paused ? <span class="muted"> – {S.job.paused}</span> : null}
        </p>
        <Progress part={job.part} label={job.text} />
        <p class="muted small">
          <span class="num">{percent(Math.min(1, job.part), 1)}</span>
          {" · "}
          {job.detail}
          {job.secondsLeft !== undefined ? ` · ${S.job.left(duration(job.secondsLeft))}` : ""}
        </p>
      </div>
      <Mends of={job.mends} />
    </li>
  );
}

function PoolCard({ status, listed }: { status: Status; listed: Schemas["PoolEntry"] | undefined }) {
  const pool = pools.value.get(status.name);
  const space = status.vdevs.space;
  const all = space?.size ?? 0;
  const used = pool?.allocated ?? space?.allocated ?? 0;
  const part = all ? used / all : 0;
  const property = (name: string) => listed?.properties.find((p) => p.name === name)?.value ?? "–";
  const kinds = [...(pool?.datasets.values() ?? [])];
  return (
    <article class="card pool-card">
      <header class="card-head">
        <h3>
          <a href={to("pool", status.name)}>{status.name}</a>
        </h3>
        {pool?.suspended ? <Badge tone="bad">{S.suspended}</Badge> : <State state={status.state} />}
      </header>
      <Meter part={part} tone={fullness(part)} label={S.overview.usedOf(status.name)} />
      <p class="split">
        <span>{S.overview.used(size(used), percent(part))}</span>
        <span class="muted">{S.overview.free(size(Math.max(0, all - used)))}</span>
      </p>
      <dl class="facts three">
        <div>
          <dt>{S.overview.datasets}</dt>
          <dd>
            <a href={to("datasets", status.name)}>
              {S.overview.counts(
                kinds.filter((d) => d.kind === "filesystem").length,
                kinds.filter((d) => d.kind === "volume").length,
              )}
            </a>
          </dd>
        </div>
        <div>
          <dt>{S.overview.fragmentation}</dt>
          <dd>{property("fragmentation")}</dd>
        </div>
        <div>
          <dt>{S.overview.dedup}</dt>
          <dd>{property("dedupratio")}</dd>
        </div>
      </dl>
      {pool?.readOnly ? <p class="muted small">{S.overview.readOnly}</p> : null}
    </article>
  );
}

export function Overview() {
  const status = useQuery("pool-status", {}, { every: 5000, on: statusNews });
  const listed = useQuery(
    "pool-list",
    { properties: ["fragmentation", "dedupratio"] },
    { every: 30_000, on: statusNews },
  );
  const schedules = useQuery("scrub-schedules", {}, { every: 60_000, on: statusNews });
  const keys = useQuery(
    "key-list",
    { recursive: true },
    { every: 60_000, on: (n) => n.what === "set" || n.what === "created" },
  );
  return (
    <>
      <h1>{S.overview.title}</h1>
      <Shown of={status}>
        {(answer) => {
          const all = answer.entries;
          if (all.length === 0 && arrived.value)
            return (
              <Card>
                <Empty
                  actions={
                    <>
                      <a class="button main" href={to("create-pool")}>
                        {S.nav.create}
                      </a>
                      <a class="button" href={to("import-pool")}>
                        {S.nav.import}
                      </a>
                    </>
                  }
                >
                  {S.overview.noPools}
                </Empty>
              </Card>
            );
          const list = all.flatMap((s) =>
            concerns(
              s,
              pools.value.get(s.name)?.suspended ?? false,
              schedules.data?.entries.find((e) => e.pool === s.name),
            ),
          );
          for (const key of keys.data ?? [])
            if (!key.loaded)
              list.push({
                key: `key-${key.dataset}`,
                tone: "info",
                pool: key.dataset.split("/")[0] ?? "",
                text: S.concern.noKey(key.dataset),
                mends: [
                  {
                    label: S.concern.loadKey,
                    text: "",
                    href: { page: "dataset", name: key.dataset, query: { tab: "encryption" } },
                  },
                ],
              });
          const rank = { bad: 0, warn: 1, info: 2 };
          list.sort((a, b) => rank[a.tone] - rank[b.tone]);
          const going = all.flatMap(jobs);
          return (
            <>
              <div class="pool-cards">
                {all.map((s) => (
                  <PoolCard
                    key={s.guid}
                    status={s}
                    listed={listed.data?.entries.find((e) => e.name === s.name)}
                  />
                ))}
              </div>
              <div class="columns">
                <Card title={S.overview.attention}>
                  {list.length ? (
                    <ul class="rows">
                      {list.map((c) => (
                        <ConcernRow key={`${c.pool}-${c.key}`} concern={c} withPool />
                      ))}
                    </ul>
                  ) : (
                    <p class="empty good">
                      <Icon name="good" /> {S.overview.allWell}
                    </p>
                  )}
                </Card>
                <Card title={S.overview.goesOn}>
                  {going.length ? (
                    <ul class="rows">
                      {going.map((j) => (
                        <JobRow key={j.key} job={j} withPool />
                      ))}
                    </ul>
                  ) : (
                    <p class="empty">{S.overview.nothingOn}</p>
                  )}
                </Card>
              </div>
              {may("pool-create") ? (
                <p class="actions">
                  <a class="button" href={to("create-pool")}>
                    {S.nav.create}
                  </a>
                  <a class="button" href={to("import-pool")}>
                    {S.nav.import}
                  </a>
                </p>
              ) : null}
            </>
          );
        }}
      </Shown>
    </>
  );
}
