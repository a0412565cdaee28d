// Filesystems that are shared by NFS.
import * as deeds from "../../deeds";
import { count, size } from "../../format";
import { DeedButton } from "../../parts/deed";
import { Card, CommandLine, Empty, Icon, Shown, Table } from "../../parts/ui";
import { useQuery } from "../../query";
import { to } from "../../route";
import { S } from "../../strings";
import { datasetNews } from "../datasets";

export function Nfs() {
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
