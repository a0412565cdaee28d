// Mounts, and clients with their rates.
import { useEffect, useRef, useState } from "preact/hooks";
import { type Schemas } from "../../api/client";
import { count, rate } from "../../format";
import { Card, Empty, Fault, Shown, Table } from "../../parts/ui";
import { useQuery } from "../../query";
import { to } from "../../route";
import { S } from "../../strings";
import { datasetNews } from "../datasets";

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

export function Mounts() {
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

export function Clients() {
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
