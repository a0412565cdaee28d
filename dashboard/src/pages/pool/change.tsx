// Dialogs that change the devices of a pool.
import { useState } from "preact/hooks";
import * as deeds from "../../deeds";
import { type Layout, type VdevClass } from "../../deeds";
import { named, short, type Vdev } from "../../health";
import { DeedDialog } from "../../parts/deed";
import { DiskChoice, type Picked } from "../../parts/disks";
import { Check, Choice, Icon } from "../../parts/ui";
import { S } from "../../strings";

export function Offline({ pool, device }: { pool: string; device: Vdev }) {
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

export function Attach({ pool, device, replace }: { pool: string; device: Vdev; replace?: boolean }) {
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

export function Add({ pool }: { pool: string }) {
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
