// Lines for clients of a volume, to be copied.
import { type Schemas } from "../../api/client";
import { Badge, Card, CommandLine, Empty, Shown } from "../../parts/ui";
import { useQuery } from "../../query";
import { to } from "../../route";
import { S } from "../../strings";
import { datasetNews } from "../datasets";

export const shareNews = (news: Parameters<typeof datasetNews>[0]) =>
  datasetNews(news) || news.what === "served";

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
    const [, portal, target, lun] = found;
    list.push({ what: T.iscsiFind, line: `iscsiadm -m discovery -t sendtargets -p ${portal}` });
    list.push({ what: T.iscsiLogin, line: `iscsiadm -m node -T ${target} -p ${portal} --login` });
    list.push({
      what: T.qemuIscsi,
      line: `qemu-system-x86_64 -m 2G -drive 'file=${iscsi},format=raw,if=virtio,cache=none'`,
    });
    const [, host = "", port = "3260"] = /^(\[[^\]]+\]|[^:]+)(?::(\d+))?$/.exec(portal ?? "") ?? [];
    list.push({
      what: T.libvirtIscsi,
      line:
        "<disk type='network' device='disk'><driver name='qemu' type='raw'/>" +
        `<source protocol='iscsi' name='${target}/${lun}'><host name='${host.replace(/^\[|\]$/g, "")}' port='${port}'/></source>` +
        "<target dev='vdb' bus='virtio'/></disk>",
    });
    list.push({
      what: T.esxiFind,
      line: `esxcli iscsi adapter discovery sendtarget add -A vmhba64 -a ${host}:${port}`,
    });
    list.push({ what: T.esxiScan, line: "esxcli storage core adapter rescan -A vmhba64" });
    list.push({ what: T.esxiList, line: `esxcli iscsi adapter target portal list -n ${target}` });
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

export function Ways({ v }: { v: Volume }) {
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
