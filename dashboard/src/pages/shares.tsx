// How others get at the data: volumes over NBD, iSCSI and vhost-user, filesystems by NFS and mounts; clients with
// their rates; lines to copy.
import { useEffect, useRef, useState } from "preact/hooks";
import type { Schemas } from "../api/client";
import { count, rate, size } from "../format";
import { Badge, Card, CommandLine, Empty, Fault, Icon, Shown, Table, Tabs } from "../parts/ui";
import * as deeds from "../deeds";
import { DeedButton } from "../parts/deed";
import { useQuery } from "../query";
import { route, to } from "../route";
import { S } from "../strings";
import { datasetNews } from "./datasets";

const shareNews = (news: Parameters<typeof datasetNews>[0]) => datasetNews(news) || news.what === "served";

type Volume = Schemas["ServedVolume"];

/** Lines for clients of a volume. */
function clientLines(v: Volume): { what: string; line: string }[] {
  const list: { what: string; line: string }[] = [];
  const T = S.shares.lines;
  const nbd = v.tcp_uris[0] ?? v.uri;
  if (nbd) {
    list.push({ what: T.nbdinfo, line: `nbdinfo '${nbd}'` });
    list.push({
      what: T.fio,
      line: `fio --name=try --ioengine=nbd --uri='${nbd}' --rw=randread --bs=16k --iodepth=16 --time_based --runtime=30`,
    });
    list.push({
      what: T.qemuNbd,
      line: `qemu-system-x86_64 -m 2G -drive 'file=${nbd},format=raw,if=virtio,cache=none,discard=unmap'`,
    });
  }
  const iscsi = v.iscsi_uris[0];
  const found = iscsi ? /^iscsi:\/\/(.+)\/([^/]+)\/(\d+)$/.exec(iscsi) : null;
  if (iscsi && found) {
    const [, portal, target] = found;
    list.push({ what: T.iscsiFind, line: `iscsiadm -m discovery -t sendtargets -p ${portal}` });
    list.push({ what: T.iscsiLogin, line: `iscsiadm -m node -T ${target} -p ${portal} --login` });
    list.push({
      what: T.qemuIscsi,
      line: `qemu-system-x86_64 -m 2G -drive 'file=${iscsi},format=raw,if=virtio,cache=none'`,
    });
  }
  if (v.vhost_user_socket) {
    list.push({
      what: T.qemuVhost,
      line:
        "qemu-system-x86_64 -m 2G -object memory-backend-memfd,id=mem,size=2G,share=on -numa node,memdev=mem " +
        `-chardev socket,id=vol,path=${v.vhost_user_socket},reconnect=1 -device vhost-user-blk-pci,chardev=vol`,
    });
    list.push({
      what: T.libvirt,
      line: `<disk type='vhostuser' device='disk'><driver name='qemu' type='raw'/><source type='unix' path='${v.vhost_user_socket}'/><target dev='vdb' bus='virtio'/></disk>`,
    });
  } else if (nbd?.startsWith("nbd://")) {
    const [, host = "", port = "10809", name = ""] =
      /^nbd:\/\/([^:/]+|\[[^\]]+\])(?::(\d+))?\/(.*)$/.exec(nbd) ?? [];
    list.push({
      what: T.libvirt,
      line: `<disk type='network' device='disk'><driver name='qemu' type='raw'/><source protocol='nbd' name='${name}'><host name='${host}' port='${port}'/></source><target dev='vdb' bus='virtio'/></disk>`,
    });
  }
  return list;
}

export function MendShares({ volume }: { volume: string }) {
  const volumes = useQuery("volume-list", {}, { every: 20_000, on: shareNews });
  return (
    <Shown of={volumes} needs="volume-list">
      {(list) => {
        const mine = list.find((v) => v.name === volume);
        return mine ? (
          <Card title={S.shares.ways}>
            <Ways v={mine} />
          </Card>
        ) : (
          <Card>
            <Empty>{S.shares.notServed}</Empty>
          </Card>
        );
      }}
    </Shown>
  );
}

function Ways({ v }: { v: Volume }) {
  if (v.unavailable)
    return (
      <p class="empty">
        <Badge tone="warn">{v.unavailable}</Badge>
        <a class="button" href={to("dataset", v.name, { tab: "encryption" })}>
          {S.concern.loadKey}
        </a>
      </p>
    );
  const ways = clientLines(v);
  return ways.length ? (
    <div class="stack">
      {ways.map((w) => (
        <CommandLine key={w.what} label={w.what} line={w.line} />
      ))}
    </div>
  ) : (
    <Empty>{S.shares.notServed}</Empty>
  );
}

interface Rated {
  client: Schemas["Client"];
  reads: number;
  writes: number;
  nread: number;
  nwritten: number;
}
/** Clients with their rates: differences of two answers. */
function useClients(): { rated: Rated[]; error: ReturnType<typeof useQuery<"counters">>["error"] } {
  const counters = useQuery("counters", { groups: ["clients"] }, { every: 2000 });
  const before = useRef<{ time: number; clients: Map<string, Schemas["Client"]> } | undefined>(undefined);
  const [rated, setRated] = useState<Rated[]>([]);
  useEffect(() => {
    const now = counters.data;
    if (!now) return;
    const time = Number(now.time_ns) / 1e9;
    const old = before.current;
    const key = (c: Schemas["Client"]) => `${c.kind} ${c.id} ${c.dataset}`;
    setRated(
      (now.clients ?? []).map((client) => {
        const was = old?.clients.get(key(client))?.counters;
        const seconds = old ? time - old.time : 0;
        const speed = (name: string) =>
          was && seconds > 0 ? Math.max(0, (client.counters[name] ?? 0) - (was[name] ?? 0)) / seconds : 0;
        return {
          client,
          reads: speed("reads"),
          writes: speed("writes"),
          nread: speed("nread"),
          nwritten: speed("nwritten"),
        };
      }),
    );
    before.current = { time, clients: new Map((now.clients ?? []).map((c) => [key(c), c])) };
  }, [counters.at]);
  return { rated, error: counters.error };
}

export function Shares() {
  const tab = route.value.query.get("tab") ?? "volumes";
  return (
    <>
      <h1>{S.nav.shares}</h1>
      <Tabs
        tabs={[
          ["volumes", S.shares.volumes],
          ["nfs", S.shares.nfs],
          ["mounts", S.shares.mounts],
          ["clients", S.shares.clients],
        ]}
        now={tab}
        href={(id) => to("shares", "", { tab: id })}
      />
      {tab === "nfs" ? (
        <Nfs />
      ) : tab === "mounts" ? (
        <Mounts />
      ) : tab === "clients" ? (
        <Clients />
      ) : (
        <Volumes />
      )}
    </>
  );
}

function Volumes() {
  const volumes = useQuery("volume-list", {}, { every: 20_000, on: shareNews });
  const shares = useQuery("share-list", {}, { every: 10_000, on: shareNews });
  const [open, setOpen] = useState<string | null>(null);
  return (
    <Shown of={volumes} needs="volume-list">
      {(list) => {
        const own = list.filter((v) => !v.name.includes("@"));
        const faults = (shares.data?.entries ?? []).filter(
          (s) => s.fault || s.through.some((t) => t.fault) || s.waiting?.length,
        );
        return (
          <>
            {faults.length ? (
              <Card title={S.overview.attention}>
                <ul class="rows">
                  {faults.map((f) => (
                    <li class="concern warn" key={f.name}>
                      <Icon name="warn" />
                      <div class="grow">
                        <a href={to("dataset", f.name, { tab: "share" })}>{f.name}</a>
                        <p>
                          {f.fault ??
                            f.through
                              .map((t) => t.fault)
                              .filter(Boolean)
                              .join(" ")}
                        </p>
                        {f.waiting?.map((w, i) => (
                          <p key={i} class="muted small">
                            {S.shares.waiting(
                              w.what ?? "",
                              w.client ?? "",
                              w.seconds ?? 0,
                              w.waits_for ?? "",
                            )}
                          </p>
                        ))}
                      </div>
                    </li>
                  ))}
                </ul>
              </Card>
            ) : null}
            <Card title={S.shares.volumes}>
              {own.length ? (
                <ul class="rows">
                  {own.map((v) => {
                    const through = shares.data?.entries.find((s) => s.name === v.name)?.through ?? [];
                    return (
                      <li key={v.name} class="high">
                        <Icon name="volume" />
                        <div class="grow stack">
                          <p class="split">
                            <a href={to("dataset", v.name, { tab: "share" })}>{v.name}</a>
                            <span class="muted num">
                              {S.shares.volumeOf(size(v.size_bytes), size(v.block_bytes))}
                            </span>
                          </p>
                          <p class="actions">
                            {v.unavailable ? <Badge tone="warn">{v.unavailable}</Badge> : null}
                            {through.map((t) => (
                              <Badge
                                key={t.protocol}
                                tone={t.fault || t.not_listening?.length ? "warn" : "good"}
                                title={t.uris.join("\n")}
                              >
                                {S.shares.protocols[t.protocol] ?? t.protocol}
                              </Badge>
                            ))}
                            {through.some((t) => t.initiators.length || t.addresses.length) ? (
                              <span class="muted small">
                                {S.shares.onlyFor(
                                  [
                                    ...new Set(through.flatMap((t) => [...t.initiators, ...t.addresses])),
                                  ].join(", "),
                                )}
                              </span>
                            ) : null}
                          </p>
                          {open === v.name ? <Ways v={v} /> : null}
                        </div>
                        <button
                          type="button"
                          class="button"
                          aria-expanded={open === v.name}
                          onClick={() => setOpen(open === v.name ? null : v.name)}
                        >
                          {open === v.name ? S.close : S.shares.connect}
                          <span class="sr"> {v.name}</span>
                        </button>
                      </li>
                    );
                  })}
                </ul>
              ) : (
                <Empty
                  actions={
                    <a class="button" href={to("datasets")}>
                      {S.nav.datasets}
                    </a>
                  }
                >
                  {S.shares.noVolumes}
                </Empty>
              )}
              <p class="hint">{S.shares.listenHint}</p>
            </Card>
          </>
        );
      }}
    </Shown>
  );
}

function Nfs() {
  const nfs = useQuery("nfs-list", {}, { every: 5000, on: datasetNews });
  return (
    <Shown of={nfs} needs="nfs-list">
      {(list) => {
        const [host, port] = (/^(.*):(\d+)$/.exec(list.addresses[0] ?? "") ?? []).slice(1) as [
          string?,
          string?,
        ];
        return (
          <>
            <Card title={S.shares.nfs}>
              {list.addresses.length ? (
                <p class="muted">{S.shares.listens(list.addresses.join(", "))}</p>
              ) : (
                <>
                  <p class="muted">{S.shares.nfsOff}</p>
                  <CommandLine line="cenote serve --nfs 0.0.0.0:2049" />
                </>
              )}
              {list.waiting.length ? (
                <p class="hint wrong">{S.shares.waitsFor(list.waiting.join(", "))}</p>
              ) : null}
              {list.shares.length ? (
                <ul class="rows">
                  {list.shares.map((s) => (
                    <li key={s.dataset} class="high">
                      <Icon name="dataset" />
                      <div class="grow stack">
                        <p class="split">
                          <a href={to("dataset", s.dataset, { tab: "share" })}>{s.dataset}</a>
                          <span class="muted">{s.options}</span>
                        </p>
                        {s.fault ? <p class="hint wrong">{s.fault}</p> : null}
                        {host && port ? (
                          <CommandLine
                            line={`mount -t nfs -o vers=3,tcp,port=${port},mountport=${port},mountproto=tcp,nolock ${host}:${s.path} /mnt`}
                          />
                        ) : (
                          <p class="mono">{s.path}</p>
                        )}
                      </div>
                      <DeedButton
                        label={S.dataset.unshare}
                        text={S.dataset.unshareText}
                        deed={() => deeds.unshare(s.dataset)}
                        done={nfs.reload}
                      />
                    </li>
                  ))}
                </ul>
              ) : (
                <Empty>{S.shares.noNfs}</Empty>
              )}
            </Card>
            <Card title={S.shares.clients}>
              {list.clients.length ? (
                <Table
                  label={S.shares.clients}
                  head={
                    <>
                      <th scope="col">{S.shares.address}</th>
                      <th scope="col">{S.shares.mounts}</th>
                      <th scope="col" class="num">
                        {S.shares.requests}
                      </th>
                      <th scope="col" class="num">
                        {S.perf.read}
                      </th>
                      <th scope="col" class="num">
                        {S.perf.written}
                      </th>
                    </>
                  }
                >
                  {list.clients.map((c) => (
                    <tr key={c.address}>
                      <td>{c.address}</td>
                      <td>{c.mounts.join(", ")}</td>
                      <td class="num">{count(c.requests)}</td>
                      <td class="num">{size(c.read_bytes)}</td>
                      <td class="num">{size(c.written_bytes)}</td>
                    </tr>
                  ))}
                </Table>
              ) : (
                <Empty>{S.shares.noClients}</Empty>
              )}
            </Card>
          </>
        );
      }}
    </Shown>
  );
}

function Mounts() {
  const mounts = useQuery("mount-list", {}, { every: 10_000, on: datasetNews });
  return (
    <Card title={S.shares.mounts}>
      <Shown of={mounts}>
        {(list) =>
          list.length ? (
            <Table
              label={S.shares.mounts}
              head={
                <>
                  <th scope="col">{S.nav.dataset}</th>
                  <th scope="col">{S.datasets.mountpoint}</th>
                  <th scope="col" class="wide">
                    {S.shares.options}
                  </th>
                </>
              }
            >
              {list.map((m) => (
                <tr key={m.mountpoint}>
                  <td>
                    <a href={to("dataset", m.dataset)}>{m.dataset}</a>
                  </td>
                  <td class="value">
                    <code>{m.mountpoint}</code>
                  </td>
                  <td class="wide muted small">{m.options.join(", ")}</td>
                </tr>
              ))}
            </Table>
          ) : (
            <Empty>{S.shares.noMounts}</Empty>
          )
        }
      </Shown>
    </Card>
  );
}

function Clients() {
  const { rated, error } = useClients();
  if (error) return <Fault error={error} />;
  return (
    <Card title={S.shares.clients}>
      {rated.length ? (
        <Table
          label={S.shares.clients}
          head={
            <>
              <th scope="col">{S.shares.client}</th>
              <th scope="col">{S.nav.dataset}</th>
              <th scope="col" class="num">
                {S.perf.reads}
              </th>
              <th scope="col" class="num">
                {S.perf.read}
              </th>
              <th scope="col" class="num">
                {S.perf.writes}
              </th>
              <th scope="col" class="num">
                {S.perf.written}
              </th>
            </>
          }
        >
          {rated.map((r) => (
            <tr key={`${r.client.kind} ${r.client.id} ${r.client.dataset}`}>
              <td class="value">
                <strong>{r.client.kind}</strong> {r.client.client ?? r.client.mountpoint ?? ""}
              </td>
              <td>
                <a href={to("dataset", r.client.dataset)}>{r.client.dataset}</a>
              </td>
              <td class="num">{count(r.reads)}/s</td>
              <td class="num">{rate(r.nread)}</td>
              <td class="num">{count(r.writes)}/s</td>
              <td class="num">{rate(r.nwritten)}</td>
            </tr>
          ))}
        </Table>
      ) : (
        <Empty>{S.shares.noClients}</Empty>
      )}
    </Card>
  );
}
