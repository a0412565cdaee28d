// How others get at the data: volumes and filesystems, mounts, clients.
import { Tabs } from "../parts/ui";
import { route, to } from "../route";
import { S } from "../strings";
import { Volumes } from "./shares/volumes";
import { Nfs } from "./shares/nfs";
import { Mounts, Clients } from "./shares/clients";

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
