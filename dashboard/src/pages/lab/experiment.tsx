// One experiment: how far it is, what it found, and what comes of that.
import { useEffect, useState } from "preact/hooks";
import { ApiError, ask, type ReplyOf } from "../../api/client";
import * as deeds from "../../deeds";
import { ago, size } from "../../format";
import { DeedButton, DeedDialog, openDialog } from "../../parts/deed";
import { Button, Card, Check, Empty, Fault, Shown, Table, TextField } from "../../parts/ui";
import { useQuery } from "../../query";
import type { Document } from "../../report/document";
import { Report } from "../../report/report";
import { go, to } from "../../route";
import { pools } from "../../state";
import { S } from "../../strings";
import { ProgressOf, StateOf, useExperiments, type Experiment } from "../lab";

const L = S.lab;
type Found = ReplyOf<"lab-report">;

export function ExperimentPage({ name }: { name: string }) {
  const listed = useExperiments();
  return (
    <>
      <nav class="crumbs" aria-label={S.datasets.path}>
        <a href={to("lab")}>{S.nav.lab}</a>
      </nav>
      <Shown of={listed} needs="lab-list">
        {(list) => {
          const mine = list.find((e) => e.name === name);
          if (!mine)
            return (
              <>
                <h1>{name}</h1>
                <Empty>{L.gone}</Empty>
              </>
            );
          return <Whole of={mine} busy={list.some((e) => e.state === "running")} reload={listed.reload} />;
        }}
      </Shown>
    </>
  );
}

function Whole({ of, busy, reload }: { of: Experiment; busy: boolean; reload: () => void }) {
  const running = of.state === "running";
  return (
    <>
      <div class="page-head">
        <h1>{of.name}</h1>
        <StateOf of={of} />
        <div class="actions">
          {running ? (
            <DeedButton
              label={L.stop}
              title={L.stopTitle(of.name)}
              text={L.stopText}
              deed={() => deeds.stopLab(of.name)}
              kind="main"
              done={reload}
            />
          ) : of.state === "ended" ? (
            <Button
              needs="lab-resume"
              off={busy ? L.another : undefined}
              onClick={() => openDialog(<More name={of.name} reload={reload} />)}
            >
              {L.more}
            </Button>
          ) : (
            <DeedButton
              label={L.resume}
              title={L.resumeTitle(of.name)}
              text={L.resumeText}
              deed={() => deeds.resumeLab(of.name)}
              kind="main"
              off={busy ? L.another : undefined}
              done={reload}
            />
          )}
          <Button
            needs="lab-remove"
            kind="remove"
            off={running ? L.another : undefined}
            onClick={() => openDialog(<Remove of={of} />)}
          >
            {L.remove}
          </Button>
        </div>
      </div>
      <Card>
        {of.question ? <p>{of.question}</p> : null}
        <ProgressOf of={of} />
        {of.error ? <Fault error={new ApiError("failed", of.error, 0)} /> : null}
        <p class="muted small">
          {running ? L.began(ago(of.began)) : L.ended(ago(of.began), size(of.space_bytes))}
        </p>
      </Card>
      <Applied of={of} reload={reload} />
      <FoundOf of={of} />
    </>
  );
}

function More({ name, reload }: { name: string; reload: () => void }) {
  const [rounds, setRounds] = useState("2");
  const n = Number(rounds);
  return (
    <DeedDialog
      title={L.moreTitle(name)}
      verb={L.moreVerb}
      deed={deeds.resumeLab(name, n)}
      missing={Number.isInteger(n) && n > 0 && n < 1000 ? undefined : L.rounds}
      done={reload}
    >
      <p>{L.moreText}</p>
      <TextField
        label={L.roundsMore}
        type="number"
        value={rounds}
        set={setRounds}
        hint={L.roundsHint}
        focus
      />
    </DeedDialog>
  );
}

function Remove({ of }: { of: Experiment }) {
  const [force, setForce] = useState(false);
  return (
    <DeedDialog
      title={L.removeTitle(of.name)}
      verb={L.removeVerb}
      deed={deeds.removeLab(of.name, force)}
      typed={of.name}
      danger
      done={() => go("lab")}
    >
      <p>{L.removeText(size(of.space_bytes))}</p>
      {of.applied.length ? <Check label={L.removeForce} value={force} set={setForce} /> : null}
    </DeedDialog>
  );
}

function Applied({ of, reload }: { of: Experiment; reload: () => void }) {
  if (!of.applied.length) return null;
  return (
    <Card title={L.applied}>
      <ul class="rows">
        {of.applied.map((a) => (
          <li key={a.dataset} class="high">
            <div class="grow stack">
              <a href={to("dataset", a.dataset, { tab: "properties" })}>{a.dataset}</a>
              <p class="muted">{L.appliedTo(a.variant, ago(a.at))}</p>
              <ul class="small">
                {a.changes.map(([property, value], i) => {
                  const was = a.was.find((w) => w[0] === property) ?? a.was[i];
                  return (
                    <li key={property}>
                      <code>
                        {property}={value}
                      </code>{" "}
                      <span class="muted">
                        ({L.was(property as string, (was?.[1] ?? null) as string | null)})
                      </span>
                    </li>
                  );
                })}
              </ul>
            </div>
            <DeedButton
              label={L.revert}
              title={L.revertTitle(a.dataset)}
              text={L.revertText}
              deed={() => deeds.revertLab(of.name, a.dataset, a.was as [string, string | null][])}
              done={reload}
            />
          </li>
        ))}
      </ul>
    </Card>
  );
}

function FoundOf({ of }: { of: Experiment }) {
  const running = of.state === "running";
  const found = useQuery("lab-report", { name: of.name }, { every: running ? 20_000 : 600_000 });
  // What ended since is asked for at once.
  useEffect(() => {
    if (!running) found.reload();
  }, [running]);
  if (found.error && !found.data)
    return (
      <Card title={L.report}>
        <p class="muted">{L.noReport}</p>
        {running ? null : <Fault error={found.error} retry={found.reload} />}
      </Card>
    );
  return (
    <Shown of={found} needs="lab-report">
      {(data) => (
        <>
          <Verdicts of={of} found={data} />
          <Card
            title={L.report}
            actions={
              <>
                <Button onClick={() => save(of.name, data)}>{L.saveReport}</Button>
                <Button onClick={() => print()}>{L.print}</Button>
              </>
            }
          >
            {running ? <p class="muted">{L.reportSoFar}</p> : null}
            <Report of={data.document as unknown as Document} />
          </Card>
          <Card title={L.itsText}>
            <pre class="text" tabIndex={0}>
              {data.experiment}
            </pre>
          </Card>
        </>
      )}
    </Shown>
  );
}

function save(name: string, found: Found) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(
    new Blob([JSON.stringify(found.document, null, 1)], { type: "application/json" }),
  );
  link.download = `${name}.json`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

function Verdicts({ of, found }: { of: Experiment; found: Found }) {
  if (of.state === "running") return null;
  return (
    <Card title={L.verdicts}>
      {found.verdicts.length ? (
        <>
          <p class="muted">{L.verdictsText}</p>
          <ul class="rows">
            {found.verdicts.map((v) => (
              <li key={v.variant} class="high">
                <div class="grow stack">
                  <p>
                    <strong>{v.variant}</strong>
                  </p>
                  <p>{v.text}</p>
                  {v.changes.length ? (
                    <p class="small">
                      {v.changes.map(([property, value]) => (
                        <span key={property}>
                          <code>
                            {property}={value}
                          </code>{" "}
                        </span>
                      ))}
                    </p>
                  ) : null}
                  {v.why_not ? <p class="hint">{v.why_not}</p> : null}
                </div>
                {v.why_not || !v.changes.length ? null : (
                  <Button
                    needs="lab-apply"
                    label={L.applyOf(v.variant)}
                    onClick={() => openDialog(<Apply name={of.name} verdict={v} />)}
                  >
                    {L.apply}
                  </Button>
                )}
              </li>
            ))}
          </ul>
        </>
      ) : (
        <Empty>{L.noVerdicts}</Empty>
      )}
    </Card>
  );
}

function Apply({ name, verdict }: { name: string; verdict: Found["verdicts"][number] }) {
  const [dataset, setDataset] = useState("");
  const [plan, setPlan] = useState<ReplyOf<"lab-apply"> | ApiError | undefined>();
  const volumes = verdict.changes.some(([property]) => property === "volblocksize");
  const known = [...pools.value.values()].flatMap((p) => [...p.datasets.values()]);
  const names = known.filter((d) => !volumes || d.kind === "volume").map((d) => d.name);
  const there = known.some((d) => d.name === dataset);
  useEffect(() => {
    setPlan(undefined);
    if (!there) return undefined;
    const mine = new AbortController();
    ask("lab-apply", { name, variant: verdict.variant, dataset, dry_run: true }, mine.signal).then(
      setPlan,
      (error: unknown) => {
        if (error instanceof ApiError) setPlan(error);
      },
    );
    return () => mine.abort();
  }, [dataset, there]);
  const good = plan && !(plan instanceof ApiError) ? plan : undefined;
  const missing = !there
    ? L.chooseDataset
    : plan instanceof ApiError
      ? plan.message
      : !good
        ? L.checking
        : good.commands.length
          ? undefined
          : L.nothingToDo;
  return (
    <DeedDialog
      title={L.applyTitle(verdict.variant)}
      verb={L.applyVerb}
      deed={deeds.applyLab(
        name,
        verdict.variant,
        dataset,
        good?.commands ?? verdict.changes.map(([p, v]) => `cenote zfs set ${p}=${v} ${dataset || "DATASET"}`),
      )}
      missing={missing}
      said={L.applySaid(dataset)}
    >
      <p>{verdict.text}</p>
      <p>{L.applyText}</p>
      <TextField label={L.dataset} value={dataset} set={setDataset} list={names} hint={L.datasetHint} focus />
      {plan instanceof ApiError ? <Fault error={plan} /> : null}
      {good?.remarks?.length ? (
        <ul class="bullets small">
          {good.remarks.map((r) => (
            <li key={r}>{r}</li>
          ))}
        </ul>
      ) : null}
      {good ? (
        good.was.length ? (
          <Table
            label={L.oldValue}
            head={
              <>
                <th scope="col">{S.name}</th>
                <th scope="col">{L.oldValue}</th>
                <th scope="col">{L.newValue}</th>
              </>
            }
          >
            {good.was.map(([property, value]) => (
              <tr key={property as string}>
                <td>
                  <code>{property}</code>
                </td>
                <td>{value ?? <span class="muted">{L.notSet}</span>}</td>
                <td>{verdict.changes.find((c) => c[0] === property)?.[1] ?? "–"}</td>
              </tr>
            ))}
          </Table>
        ) : (
          <p class="muted">{L.nothingToDo}</p>
        )
      ) : there && !plan ? (
        <p class="muted">{L.checking}</p>
      ) : null}
    </DeedDialog>
  );
}
