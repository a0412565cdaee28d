// Alerts: what is run or called when something happens.
import { useState } from "preact/hooks";
import { ApiError, ask, type Schemas } from "../api/client";
import * as deeds from "../deeds";
import { DeedButton, DeedDialog, openDialog } from "../parts/deed";
import {
  Badge,
  Button,
  Card,
  Check,
  Choice,
  CommandLine,
  Empty,
  Fault,
  Icon,
  Shown,
  TextField,
} from "../parts/ui";
import { useQuery } from "../query";
import { S } from "../strings";

const EVENTS = [
  "fault",
  "online",
  "scrub-finished",
  "resilver-finished",
  "spare-in-use",
  "suspended",
  "data-error",
  "all",
] as const;
type Hook = Schemas["Hook"];
const textOf = (hook: Hook) => ("command" in hook.action ? hook.action.command : hook.action.webhook);

export function Hooks() {
  const hooks = useQuery("hook-list", {}, { every: 30_000 });
  return (
    <>
      <div class="page-head">
        <h1>{S.nav.hooks}</h1>
        <div class="actions">
          <Button needs="hook-add" kind="main" onClick={() => openDialog(<Add reload={hooks.reload} />)}>
            {S.hooks.add}
          </Button>
        </div>
      </div>
      <Card>
        <p class="muted">{S.hooks.text}</p>
        <Shown of={hooks} needs="hook-list">
          {(list) =>
            list.length ? (
              <ul class="rows">
                {list.map((h) => (
                  <Row key={h.name} hook={h} reload={hooks.reload} />
                ))}
              </ul>
            ) : (
              <Empty>{S.hooks.none}</Empty>
            )
          }
        </Shown>
      </Card>
    </>
  );
}

function Row({ hook, reload }: { hook: Hook; reload: () => void }) {
  const [tested, setTested] = useState<Schemas["HookTested"] | ApiError | "busy" | undefined>();
  const test = async (dryRun: boolean) => {
    setTested("busy");
    try {
      setTested(await ask("hook-test", { name: hook.name, dry_run: dryRun }));
    } catch (error) {
      setTested(error instanceof ApiError ? error : new ApiError("failed", String(error), 0));
    }
  };
  return (
    <li class="high">
      <Icon name="bell" />
      <div class="grow stack">
        <p class="actions">
          <strong>{hook.name}</strong>
          {hook.events.map((e) => (
            <Badge key={e} tone="info">
              {S.hooks.events[e] ?? e}
            </Badge>
          ))}
        </p>
        <p class="small">
          <span class="muted">{"command" in hook.action ? S.hooks.command : S.hooks.webhook}: </span>
          <code>{textOf(hook)}</code>
        </p>
        {tested === "busy" ? <p class="muted">{S.working}</p> : null}
        {tested instanceof ApiError ? <Fault error={tested} /> : null}
        {tested && typeof tested === "object" && !(tested instanceof ApiError) ? (
          <div class="stack">
            <p>
              {tested.outcome ? (
                <Badge tone={/^(exit code 0|ok|done|200|2\d\d)/i.test(tested.outcome) ? "good" : "plain"}>
                  {tested.outcome}
                </Badge>
              ) : (
                <span class="muted">{S.hooks.dryRun}</span>
              )}
            </p>
            <ul class="short-list small" tabIndex={0} aria-label={S.hooks.environment}>
              {tested.environment.map(([name, value]) => (
                <li key={name}>
                  <code>
                    {name}={value}
                  </code>
                </li>
              ))}
            </ul>
          </div>
        ) : null}
        {tested ? <CommandLine line={deeds.testHook(hook.name, false).line} label={S.sameAs} /> : null}
      </div>
      <div class="actions">
        <Button needs="hook-test" onClick={() => void test(false)} label={S.hooks.testOf(hook.name)}>
          {S.hooks.test}
        </Button>
        <Button
          needs="hook-add"
          onClick={() => openDialog(<Add reload={reload} hook={hook} />)}
          label={S.hooks.changeOf(hook.name)}
        >
          {S.hooks.change}
        </Button>
        <DeedButton
          label={S.hooks.remove}
          title={S.hooks.removeOf(hook.name)}
          text={S.hooks.removeText}
          deed={() => deeds.removeHook(hook.name)}
          done={reload}
        />
      </div>
    </li>
  );
}

function Add({ reload, hook }: { reload: () => void; hook?: Hook }) {
  const [name, setName] = useState(hook?.name ?? "");
  const [kind, setKind] = useState<"webhook" | "command">(
    hook && "command" in hook.action ? "command" : "webhook",
  );
  const [text, setText] = useState(hook ? textOf(hook) : "");
  const [events, setEvents] = useState<readonly string[]>(
    hook?.events ?? ["fault", "data-error", "suspended"],
  );
  const [other, setOther] = useState(
    (hook?.events ?? []).filter((e) => !EVENTS.includes(e as "all")).join(" "),
  );
  const all = [
    ...events.filter((e) => EVENTS.includes(e as "all")),
    ...other.split(/[\s,]+/).filter(Boolean),
  ];
  const toggle = (e: string) =>
    setEvents(events.includes(e) ? events.filter((x) => x !== e) : [...events, e]);
  return (
    <DeedDialog
      title={hook ? S.hooks.changeOf(hook.name) : S.hooks.addTitle}
      verb={S.hooks.save}
      deed={deeds.addHook(name, all, kind, text || (kind === "command" ? "COMMAND" : "http://…"))}
      missing={
        !name ? S.datasets.nameIt : !all.length ? S.hooks.chooseEvents : !text ? S.hooks.sayWhat : undefined
      }
      done={reload}
    >
      <TextField label={S.name} value={name} set={setName} focus={!hook} placeholder="mail" />
      <fieldset>
        <legend>{S.hooks.when}</legend>
        <div class="fields">
          {EVENTS.map((e) => (
            <Check key={e} label={S.hooks.events[e] ?? e} value={events.includes(e)} set={() => toggle(e)} />
          ))}
        </div>
      </fieldset>
      <TextField label={S.hooks.other} value={other} set={setOther} hint={S.hooks.otherHint} />
      <Choice
        label={S.hooks.what}
        value={kind}
        set={setKind}
        options={[
          ["webhook", S.hooks.webhookLong],
          ["command", S.hooks.commandLong],
        ]}
      />
      <TextField
        label={kind === "command" ? S.hooks.command : S.hooks.webhook}
        value={text}
        set={setText}
        placeholder={
          kind === "command"
            ? 'echo "$ZEVENT_POOL: $ZEVENT_CLASS" | mail root'
            : "http://monitor.example/events"
        }
        hint={kind === "command" ? S.hooks.commandHint : S.hooks.webhookHint}
      />
    </DeedDialog>
  );
}
