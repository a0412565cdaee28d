// A new experiment: a question, the experiment as a form or as text, and what it takes, before it is started.
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, ask, type ReplyOf } from "../../api/client";
import * as deeds from "../../deeds";
import { duration, size } from "../../format";
import { DeedDialog, openDialog } from "../../parts/deed";
import {
  Badge,
  Button,
  Card,
  Check,
  Choice,
  CommandLine,
  Facts,
  Fault,
  Icon,
  Shown,
  TextField,
} from "../../parts/ui";
import { useQuery } from "../../query";
import { go, to } from "../../route";
import { S } from "../../strings";
import { useExperiments } from "../lab";

const L = S.lab;
type Recipe = ReplyOf<"lab-recipes">[number];
type Plan = ReplyOf<"lab-plan">;

interface Form {
  target: string;
  otherTarget: string;
  size: string;
  goal: string;
  atLeast: string;
  atMost: string;
  mode: string;
  layout: string;
  workloads: string;
  factors: string;
}
const EMPTY: Form = {
  target: "",
  otherTarget: "",
  size: "",
  goal: "",
  atLeast: "",
  atMost: "",
  mode: "",
  layout: "",
  workloads: "",
  factors: "",
};
const linesOf = (text: string) =>
  text
    .split("\n")
    .map((l) => l.trim())
    .filter(Boolean);
const pairsOf = (text: string) =>
  linesOf(text).map((l): [string, string] => {
    const cut = l.indexOf("=");
    return cut < 0 ? [l, ""] : [l.slice(0, cut).trim(), l.slice(cut + 1).trim()];
  });

/** The first of many. */
const some = (list: readonly string[]) =>
  list.length > 6 ? `${list.slice(0, 5).join(", ")}, ${S.dataset.andMore(list.length - 5)}` : list.join(", ");

/** An answer for what was typed last, a moment after that. */
function useLater<T>(key: string, work: ((signal: AbortSignal) => Promise<T>) | undefined) {
  const [state, setState] = useState<{ key: string; data?: T; error?: ApiError }>({ key: "" });
  useEffect(() => {
    if (!work) return undefined;
    const mine = new AbortController();
    const timer = setTimeout(() => {
      work(mine.signal).then(
        (data) => setState({ key, data }),
        (error: unknown) => {
          if (mine.signal.aborted) return;
          setState({
            key,
            error: error instanceof ApiError ? error : new ApiError("failed", String(error), 0),
          });
        },
      );
    }, 350);
    return () => {
      clearTimeout(timer);
      mine.abort();
    };
  }, [key]);
  return { ...state, fresh: state.key === key };
}

export function NewExperiment() {
  const recipes = useQuery("lab-recipes", {});
  const listed = useExperiments();
  const [recipe, setRecipe] = useState<Recipe | "own" | undefined>();
  const [name, setName] = useState("");
  const [form, setForm] = useState<Form>(EMPTY);
  const [text, setText] = useState("");
  const [edited, setEdited] = useState(false);
  const [shown, setShown] = useState<"form" | "text">("form");
  const [quick, setQuick] = useState(true);
  const [rounds, setRounds] = useState("");
  const taken = new Set((listed.data ?? []).map((e) => e.name));
  const running = (listed.data ?? []).some((e) => e.state === "running");
  const set = (part: Partial<Form>) => setForm({ ...form, ...part });
  const choose = (next: Recipe | "own") => {
    setRecipe(next);
    setEdited(false);
    setForm(
      next === "own" ? { ...EMPTY, target: "volume", workloads: "randread,16K,16", goal: "iops" } : EMPTY,
    );
    const stem = next === "own" ? "experiment" : next.name;
    let free = stem;
    for (let n = 2; taken.has(free); n += 1) free = `${stem}-${n}`;
    setName(free);
  };

  // The text follows the form until it is changed by hand.
  const request = {
    ...(recipe && recipe !== "own" ? { recipe: recipe.name } : {}),
    ...(name ? { name } : {}),
    ...(form.otherTarget || form.target ? { target: form.otherTarget || form.target } : {}),
    ...(form.size ? { size: form.size } : {}),
    ...(form.goal ? { goal: form.goal } : {}),
    ...(form.atLeast ? { at_least: form.atLeast } : {}),
    ...(form.atMost ? { at_most: form.atMost } : {}),
    ...(form.mode ? { mode: form.mode } : {}),
    ...(form.layout ? { layout: form.layout } : {}),
    workloads: linesOf(form.workloads),
    factors: pairsOf(form.factors),
  };
  const draft = useLater(
    recipe && !edited ? JSON.stringify(request) : "",
    recipe && !edited ? (signal) => ask("lab-draft", request, signal) : undefined,
  );
  useEffect(() => {
    if (!edited && draft.data) setText(draft.data.experiment);
  }, [draft.data, edited]);

  const least = rounds ? Number(rounds) : undefined;
  const badRounds = least !== undefined && !(Number.isInteger(least) && least > 0 && least < 1000);
  const plan = useLater(
    text && !badRounds ? JSON.stringify([text, quick, least]) : "",
    text && !badRounds
      ? (signal) => ask("lab-plan", { experiment: text, quick, ...(least ? { rounds: least } : {}) }, signal)
      : undefined,
  );
  const wrongName = !/^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$/.test(name)
    ? L.badName
    : taken.has(name)
      ? L.takenName
      : undefined;
  const missing = !recipe
    ? L.noText
    : wrongName
      ? wrongName
      : !text || draft.error
        ? L.hasFaults
        : running
          ? L.another
          : plan.error || plan.data?.faults.length
            ? L.hasFaults
            : !plan.data || !plan.fresh || !(edited || draft.fresh)
              ? L.waitPlan
              : undefined;
  const start = deeds.startLab(name, text, { quick, rounds: least });
  const second = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (recipe) second.current?.scrollIntoView({ block: "start" });
  }, [recipe]);
  return (
    <>
      <nav class="crumbs" aria-label={S.datasets.path}>
        <a href={to("lab")}>{S.nav.lab}</a>
      </nav>
      <h1>{L.newTitle}</h1>
      <Card title={L.step1}>
        <Shown of={recipes} needs="lab-recipes">
          {(list) => (
            <div class="recipes" role="group" aria-label={L.recipes}>
              {list.map((r) => (
                <button
                  type="button"
                  key={r.name}
                  class="recipe"
                  aria-pressed={recipe !== "own" && recipe?.name === r.name}
                  onClick={() => choose(r)}
                >
                  <strong>{r.question || r.about}</strong>
                  <span class="muted small">{r.about !== r.question ? r.about : ""}</span>
                  <span class="small">
                    <code>{r.name}</code> · {L.runsWith(some(r.workloads))}
                    {r.factors.length
                      ? ` · ${L.varies(r.factors.map(([f, v]) => `${f} (${some([v].flat())})`).join("; "))}`
                      : ""}
                  </span>
                </button>
              ))}
              <button
                type="button"
                class="recipe"
                aria-pressed={recipe === "own"}
                onClick={() => choose("own")}
              >
                <strong>{L.own}</strong>
                <span class="muted small">{L.ownText}</span>
              </button>
            </div>
          )}
        </Shown>
      </Card>
      {recipe ? (
        <div class="columns below-top" ref={second}>
          <Card
            title={L.step2}
            actions={
              <div class="actions" role="group" aria-label={L.step2}>
                <Toggle on={shown === "form"} set={() => setShown("form")} label={L.asForm} />
                <Toggle on={shown === "text"} set={() => setShown("text")} label={L.asText} />
              </div>
            }
          >
            <TextField
              label={L.name}
              value={name}
              set={setName}
              hint={L.nameHint}
              error={name ? wrongName : undefined}
            />
            {draft.error && !edited ? <Fault error={draft.error} /> : null}
            {edited ? (
              <div class="warning">
                <Icon name="warn" />
                <p class="grow">{L.edited}</p>
                <Button
                  onClick={() => {
                    setEdited(false);
                    if (draft.data) setText(draft.data.experiment);
                  }}
                >
                  {L.backToForm}
                </Button>
              </div>
            ) : null}
            {shown === "text" ? (
              <TextField
                label={L.experimentText}
                value={text}
                set={(t) => {
                  setText(t);
                  setEdited(true);
                }}
                multiline={24}
                hint={L.experimentHint}
              />
            ) : (
              <FormFields form={form} set={set} recipe={recipe} />
            )}
          </Card>
          <Card title={L.step3}>
            <div class="fields">
              <Choice
                label={L.howMuch}
                value={quick ? "quick" : "whole"}
                set={(v) => setQuick(v === "quick")}
                options={[
                  ["quick", L.quickForm],
                  ["whole", L.whole],
                ]}
                hint={quick ? L.quickText : L.wholeText}
              />
              <TextField
                label={L.leastRounds}
                type="number"
                value={rounds}
                set={setRounds}
                hint={L.leastRoundsHint}
                error={badRounds ? L.rounds : undefined}
              />
            </div>
            <div class="stack" aria-live="polite" aria-busy={!plan.fresh}>
              {plan.error ? <Fault error={plan.error} /> : null}
              {plan.data ? <PlanOf of={plan.data} /> : plan.error ? null : <p class="muted">{S.loading}</p>}
              {draft.data?.remarks?.length && !edited ? (
                <ul class="bullets small">
                  {draft.data.remarks.map((r) => (
                    <li key={r}>{r}</li>
                  ))}
                </ul>
              ) : null}
            </div>
            <CommandLine line={start.line} label={S.sameAs} />
            <div class="actions">
              <Button
                kind="main"
                needs="lab-start"
                off={missing}
                onClick={() =>
                  openDialog(
                    <DeedDialog
                      title={L.startTitle(name)}
                      verb={L.startVerb}
                      deed={start}
                      said={L.started(name)}
                      done={() => go("lab", name)}
                    >
                      <p>{L.startText(L.about(duration(plan.data?.seconds ?? 0)))}</p>
                    </DeedDialog>,
                  )
                }
              >
                {L.start}
              </Button>
              {missing ? <span class="muted small">{missing}</span> : null}
            </div>
          </Card>
        </div>
      ) : null}
    </>
  );
}

function Toggle({ on, set, label }: { on: boolean; set: () => void; label: string }) {
  return (
    <button type="button" class={on ? "button pressed" : "button"} aria-pressed={on} onClick={set}>
      {label}
    </button>
  );
}

function FormFields({
  form,
  set,
  recipe,
}: {
  form: Form;
  set: (part: Partial<Form>) => void;
  recipe: Recipe | "own";
}) {
  const presets = useQuery("lab-presets", {});
  const has = linesOf(form.workloads);
  const toggle = (name: string) =>
    set({
      workloads: (has.includes(name) ? has.filter((w) => w !== name) : [...has, name]).join("\n"),
    });
  const own = recipe === "own";
  const without = <T extends readonly (readonly [string, string])[]>(list: T) =>
    list.filter(([id]) => id || !own);
  return (
    <>
      <div class="fields">
        <Choice
          label={L.target}
          value={form.target}
          set={(target) => set({ target })}
          options={without(L.targets)}
        />
        <TextField
          label={L.targetOther}
          value={form.otherTarget}
          set={(otherTarget) => set({ otherTarget })}
          hint={L.targetHint}
        />
        <TextField
          label={L.sizeUsed}
          value={form.size}
          set={(bytes) => set({ size: bytes })}
          placeholder="256M"
        />
        <TextField
          label={L.layout}
          value={form.layout}
          set={(layout) => set({ layout })}
          hint={L.layoutHint}
        />
        <Choice label={L.goal} value={form.goal} set={(goal) => set({ goal })} options={without(L.goals)} />
        <Choice label={L.mode} value={form.mode} set={(mode) => set({ mode })} options={L.modes} />
        <TextField
          label={L.atLeast}
          value={form.atLeast}
          set={(atLeast) => set({ atLeast })}
          hint={L.valueHint}
        />
        <TextField
          label={L.atMost}
          value={form.atMost}
          set={(atMost) => set({ atMost })}
          hint={L.valueHint}
        />
      </div>
      <TextField
        label={L.factors}
        value={form.factors}
        set={(factors) => set({ factors })}
        multiline={3}
        placeholder={
          recipe !== "own"
            ? recipe.factors.map(([f, v]) => `${f}=${[v].flat().join(",")}`).join("\n")
            : "volblocksize=16K,64K"
        }
        hint={L.factorsHint}
      />
      <TextField
        label={L.workloads}
        value={form.workloads}
        set={(workloads) => set({ workloads })}
        multiline={3}
        placeholder={recipe !== "own" ? recipe.workloads.join("\n") : "randread,16K,16"}
        hint={L.workloadsHint}
      />
      {presets.data?.length ? (
        <details>
          <summary>{L.presets}</summary>
          <div class="stack">
            {presets.data.map((p) => (
              <Check
                key={p.name}
                label={<code>{p.name}</code>}
                hint={p.about}
                value={has.includes(p.name)}
                set={() => toggle(p.name)}
              />
            ))}
          </div>
        </details>
      ) : null}
    </>
  );
}

function PlanOf({ of }: { of: Plan }) {
  return (
    <>
      {of.faults.length ? (
        <div class="fault" role="alert">
          <Icon name="bad" />
          <div>
            <p>{L.faults}</p>
            <ul class="bullets">
              {of.faults.map((f) => (
                <li key={f}>{f}</li>
              ))}
            </ul>
          </div>
        </div>
      ) : null}
      {of.runs ? (
        <Facts
          of={[
            [L.time, <strong>{L.about(duration(of.seconds))}</strong>],
            [L.runs, String(of.runs)],
            [L.space, size(of.space_bytes)],
            of.memory_bytes ? [L.memory, size(of.memory_bytes)] : false,
          ]}
        />
      ) : null}
      {of.variants.length ? (
        <p class="small">
          <strong>{L.variants(of.variants.length)}:</strong>{" "}
          {of.variants.slice(0, 24).map((v) => (
            <span key={v}>
              <Badge tone="plain">{v}</Badge>{" "}
            </span>
          ))}
          {of.variants.length > 24 ? S.dataset.andMore(of.variants.length - 24) : ""}
        </p>
      ) : null}
      {of.workloads.length ? (
        <p class="small">
          <strong>{L.planWorkloads(of.workloads.length)}:</strong> {of.workloads.join(", ")}
        </p>
      ) : null}
      {of.remarks.length ? (
        <div class="small">
          <p>{L.remarks}</p>
          <ul class="bullets">
            {of.remarks.map((r) => (
              <li key={r}>{r}</li>
            ))}
          </ul>
        </div>
      ) : null}
    </>
  );
}
