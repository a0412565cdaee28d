// The lab: experiments that were run or run now, what they found beside each other, and advice for pools.
import { useState } from "preact/hooks";
import type { ReplyOf } from "../api/client";
import { ago, duration, size } from "../format";
import { Badge, Button, Card, Empty, Icon, Progress, Shown, Tabs, type Tone } from "../parts/ui";
import { useQuery } from "../query";
import { go, route, to } from "../route";
import { S } from "../strings";
import { Advice } from "./lab/advice";
import { Compare } from "./lab/compare";
import { ExperimentPage } from "./lab/experiment";
import { NewExperiment } from "./lab/new";

export type Experiment = ReplyOf<"lab-list">[number];

const L = S.lab;

/** All experiments; often asked for while one runs. */
export function useExperiments() {
  const [runs, setRuns] = useState(false);
  const listed = useQuery("lab-list", {}, { every: runs ? 2000 : 15_000 });
  const now = listed.data?.some((e) => e.state === "running") ?? false;
  if (now !== runs) setRuns(now);
  return listed;
}

export function Lab() {
  const name = route.value.name;
  if (name === "new") return <NewExperiment />;
  if (name) return <ExperimentPage key={name} name={name} />;
  const tab = route.value.query.get("tab") ?? "experiments";
  return (
    <>
      <div class="page-head">
        <h1>{S.nav.lab}</h1>
        <div class="actions">
          <Button needs="lab-start" kind="main" onClick={() => go("lab", "new")}>
            {L.new}
          </Button>
        </div>
      </div>
      <Tabs
        tabs={[
          ["experiments", L.tabs.experiments],
          ["compare", L.tabs.compare],
          ["advice", L.tabs.advice],
        ]}
        now={tab}
        href={(id) => to("lab", "", id === "experiments" ? {} : { tab: id })}
      />
      {tab === "advice" ? <Advice /> : tab === "compare" ? <Compare /> : <Experiments />}
    </>
  );
}

export function toneOf(experiment: Experiment): Tone {
  if (experiment.state === "running") return "info";
  if (experiment.state === "failed") return "bad";
  return experiment.state === "ended" ? "good" : "warn";
}
export function StateOf({ of }: { of: Experiment }) {
  return (
    <>
      <Badge tone={toneOf(of)}>{L.states[of.state] ?? of.state}</Badge>
      {of.quick ? <Badge tone="plain">{L.quick}</Badge> : null}
      {of.is_answered === true ? <Badge tone="good">{L.answered}</Badge> : null}
      {of.is_answered === false ? <Badge tone="plain">{L.open}</Badge> : null}
    </>
  );
}
export function ProgressOf({ of }: { of: Experiment }) {
  const p = of.progress;
  if (of.state !== "running" || !p) return null;
  return (
    <div class="stack" role="status">
      <p class="split small">
        <span>{p.now}</span>
        <span class="muted num">
          {L.runsOf(p.runs, p.of_runs)}
          {typeof p.seconds_left === "number" ? ` · ${L.left(duration(p.seconds_left))}` : ""}
        </span>
      </p>
      <Progress part={p.of_runs ? p.runs / p.of_runs : 0} label={L.progressOf(of.name)} />
    </div>
  );
}

function Experiments() {
  const listed = useExperiments();
  const [picked, setPicked] = useState<readonly string[]>([]);
  const toggle = (name: string) =>
    setPicked(picked.includes(name) ? picked.filter((p) => p !== name) : [...picked, name]);
  return (
    <Card
      title={L.tabs.experiments}
      actions={
        <Button
          needs="lab-compare"
          off={picked.length > 1 ? undefined : L.chooseTwo}
          onClick={() => go("lab", "", { tab: "compare", names: picked.join(",") })}
        >
          {L.compareChosen(picked.length)}
        </Button>
      }
    >
      <p class="muted">{L.text}</p>
      <Shown of={listed} needs="lab-list">
        {(list) =>
          list.length ? (
            <ul class="rows">
              {list.map((e) => (
                <li key={e.name} class="high">
                  <input
                    type="checkbox"
                    aria-label={L.choose(e.name)}
                    checked={picked.includes(e.name)}
                    onChange={() => toggle(e.name)}
                  />
                  <Icon name="lab" />
                  <div class="grow stack">
                    <p class="actions">
                      <a href={to("lab", e.name)}>
                        <strong>{e.name}</strong>
                      </a>
                      <StateOf of={e} />
                    </p>
                    {e.question ? <p>{e.question}</p> : null}
                    <ProgressOf of={e} />
                    {e.answer ? <p class="muted">{e.answer}</p> : null}
                    {e.error ? <p class="hint wrong">{e.error}</p> : null}
                    <p class="muted small">
                      {e.state === "running"
                        ? L.began(ago(e.began))
                        : L.ended(ago(e.began), size(e.space_bytes))}
                    </p>
                  </div>
                </li>
              ))}
            </ul>
          ) : (
            <Empty
              actions={
                <Button needs="lab-start" onClick={() => go("lab", "new")}>
                  {L.new}
                </Button>
              }
            >
              {L.none}
            </Empty>
          )
        }
      </Shown>
    </Card>
  );
}
