// What takes the space of a dataset, where it is mounted, and the block size of a volume.
import { useEffect, useState } from "preact/hooks";
import { ApiError, ask, type Schemas } from "../../api/client";
import * as deeds from "../../deeds";
import { readSize, size, when } from "../../format";
import { DeedButton, DeedDialog, openDialog } from "../../parts/deed";
import { Badge, Button, Card, Check, Choice, Facts, Fault } from "../../parts/ui";
import { to } from "../../route";
import { S } from "../../strings";
import { numberOf, valueOf, type Entry } from "../datasets";
import { SetProperty } from "./properties";

const PARTS = ["usedbydataset", "usedbysnapshots", "usedbychildren", "usedbyrefreservation"] as const;

export function Space({ entry }: { entry: Entry }) {
  const used = numberOf(entry, "used");
  const volume = entry.kind === "volume";
  const origin = valueOf(entry, "origin");
  const cloned = origin !== "–" && origin !== "-";
  return (
    <>
      <Card title={S.dataset.tabs.space}>
        <div class="shares" role="img" aria-label={S.dataset.spaceLabel}>
          {PARTS.map((p) => {
            const n = numberOf(entry, p);
            return n > 0 ? <span key={p} class={p} style={{ flexGrow: n / Math.max(1, used) }} /> : null;
          })}
        </div>
        <Facts
          of={[
            [S.datasets.used, valueOf(entry, "used")],
            [S.datasets.available, valueOf(entry, "available")],
            [S.datasets.referenced, valueOf(entry, "referenced")],
            ...PARTS.map(
              (p) =>
                [
                  <>
                    <span class={`key ${p}`} /> {S.dataset.parts[p]}
                  </>,
                  valueOf(entry, p),
                ] as const,
            ),
            [S.datasets.ratio, valueOf(entry, "compressratio")],
            volume
              ? [S.dataset.volsize, valueOf(entry, "volsize")]
              : [S.datasets.quota, valueOf(entry, "quota")],
            volume
              ? [S.datasets.block, valueOf(entry, "volblocksize")]
              : [S.datasets.record, valueOf(entry, "recordsize")],
            [S.dataset.creation, when(numberOf(entry, "creation"))],
            cloned ? [S.dataset.origin, <a href={to("dataset", origin)}>{origin}</a>] : false,
          ]}
        />
        <div class="actions">
          {volume ? (
            <>
              <Button
                needs="property-set"
                onClick={() =>
                  openDialog(
                    <SetProperty dataset={entry.name} name="volsize" value={valueOf(entry, "volsize")} />,
                  )
                }
              >
                {S.dataset.resize}
              </Button>
              <Button
                needs="volume-reshape"
                onClick={() => openDialog(<Reshape name={entry.name} now={valueOf(entry, "volblocksize")} />)}
              >
                {S.dataset.reshape}
              </Button>
            </>
          ) : (
            <Button
              needs="property-set"
              onClick={() =>
                openDialog(<SetProperty dataset={entry.name} name="quota" value={valueOf(entry, "quota")} />)
              }
            >
              {S.dataset.setQuota}
            </Button>
          )}
          {cloned ? (
            <DeedButton
              label={S.dataset.promote}
              text={S.dataset.promoteText(origin)}
              deed={() => deeds.promote(entry.name)}
            />
          ) : null}
        </div>
      </Card>
      {volume ? null : <MountCard entry={entry} />}
    </>
  );
}

function MountCard({ entry }: { entry: Entry }) {
  const mounted = valueOf(entry, "mounted") === "yes";
  return (
    <Card title={S.dataset.mount}>
      <Facts
        of={[
          [S.datasets.mountpoint, valueOf(entry, "mountpoint")],
          [S.dataset.mounted, <Badge tone={mounted ? "good" : "plain"}>{mounted ? S.yes : S.no}</Badge>],
          ["canmount", valueOf(entry, "canmount")],
          ["readonly", valueOf(entry, "readonly")],
        ]}
      />
      <div class="actions">
        {mounted ? (
          <Button needs="unmount" onClick={() => openDialog(<Unmount name={entry.name} />)}>
            {S.dataset.unmount}
          </Button>
        ) : (
          <DeedButton
            label={S.dataset.mountVerb}
            text={S.dataset.mountText(valueOf(entry, "mountpoint"))}
            deed={() => deeds.mount(entry.name)}
          />
        )}
        <Button
          needs="property-set"
          onClick={() =>
            openDialog(
              <SetProperty dataset={entry.name} name="mountpoint" value={valueOf(entry, "mountpoint")} />,
            )
          }
        >
          {S.dataset.setMountpoint}
        </Button>
      </div>
    </Card>
  );
}
function Unmount({ name }: { name: string }) {
  const [force, setForce] = useState(false);
  return (
    <DeedDialog
      title={S.dataset.unmountTitle(name)}
      verb={S.dataset.unmountVerb}
      deed={deeds.unmount(name, force)}
    >
      <p>{S.dataset.unmountText}</p>
      <Check label={S.force} hint={S.dataset.unmountForce} value={force} set={setForce} />
    </DeedDialog>
  );
}

function Reshape({ name, now }: { name: string; now: string }) {
  const [block, setBlock] = useState("64K");
  const bytes = readSize(block);
  const [plan, setPlan] = useState<Schemas["ReshapePlan"] | ApiError | null>(null);
  useEffect(() => {
    const mine = new AbortController();
    setPlan(null);
    if (bytes)
      ask(
        "volume-reshape",
        { volume: name, action: "start", volblocksize: bytes, dry_run: true },
        mine.signal,
      ).then(
        (p) => setPlan((p as Schemas["ReshapePlan"]) ?? null),
        (error: unknown) => error instanceof ApiError && setPlan(error),
      );
    return () => mine.abort();
  }, [block]);
  return (
    <DeedDialog
      title={S.dataset.reshapeTitle(name)}
      verb={S.dataset.reshapeVerb}
      deed={deeds.reshape(name, "start", bytes ?? 0, block)}
      missing={plan instanceof ApiError ? plan.message : undefined}
    >
      <p>{S.dataset.reshapeText(now)}</p>
      <Choice
        label={S.datasets.block}
        value={block}
        set={setBlock}
        options={(S.values["volblocksize"] ?? []).map((v) => [v, v] as const)}
      />
      {plan instanceof ApiError ? (
        <Fault error={plan} />
      ) : plan ? (
        <Facts
          of={[
            [S.dataset.reshapeData, size(plan.data_bytes)],
            [S.dataset.reshapeNeeds, size(plan.needed_bytes)],
            [S.datasets.available, size(plan.available_bytes)],
          ]}
        />
      ) : (
        <p class="muted">{S.loading}</p>
      )}
    </DeedDialog>
  );
}
