// Alerts: what is run or called when something happens.
import { useState } from "preact/hooks";
import { ApiError, ask, type Schemas } from "../api/client";
import * as deeds from "../deeds";
import type { HookAction } from "../deeds";
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
type Kind = (typeof S.hooks.kinds)[number][0];
const kindOf = (action: HookAction): Kind =>
  "command" in action ? "command" : "mail" in action ? "mail" : "ntfy" in action ? "ntfy" : "webhook";
const textOf = (action: HookAction): string =>
  "command" in action
    ? action.command
    : "mail" in action
      ? `${action.mail.to.join(", ")} (${action.mail.relay})`
      : "ntfy" in action
        ? action.ntfy.url
        : action.webhook;

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
          <span class="muted">{S.hooks.kinds.find(([k]) => k === kindOf(hook.action))?.[1]}: </span>
          <code>{textOf(hook.action)}</code>
          {hook.has_secret ? <span class="muted"> ({S.hooks.hasSecret})</span> : null}
        </p>
        {tested === "busy" ? <p class="muted">{S.working}</p> : null}
        {tested instanceof ApiError ? <Fault error={tested} /> : null}
        {tested && typeof tested === "object" && !(tested instanceof ApiError) ? (
          <div class="stack">
            <p>
              {tested.outcome ? (
                <Badge tone={/^it succeeded|^exit code 0/i.test(tested.outcome) ? "good" : "bad"}>
                  {tested.outcome}
                </Badge>
              ) : (
                <span class="muted">{S.hooks.dryRun}</span>
              )}
            </p>
            {tested.message ? (
              <pre class="text" tabIndex={0}>
                {tested.message}
              </pre>
            ) : null}
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
  const was = hook?.action;
  const [name, setName] = useState(hook?.name ?? "");
  const [kind, setKind] = useState<Kind>(was ? kindOf(was) : "mail");
  const [command, setCommand] = useState(was && "command" in was ? was.command : "");
  const [address, setAddress] = useState(was && "webhook" in was ? was.webhook : "");
  const [topic, setTopic] = useState(was && "ntfy" in was ? was.ntfy.url : "");
  const [priority, setPriority] = useState(was && "ntfy" in was ? String(was.ntfy.priority ?? "") : "");
  const [relay, setRelay] = useState(was && "mail" in was ? was.mail.relay : "");
  const [from, setFrom] = useState(was && "mail" in was ? was.mail.from : "");
  const [to, setTo] = useState(was && "mail" in was ? was.mail.to.join(", ") : "");
  const [secret, setSecret] = useState("");
  const [drop, setDrop] = useState(false);
  const [limit, setLimit] = useState(hook?.limit_s ? String(hook.limit_s) : "");
  const [events, setEvents] = useState<readonly string[]>(
    hook?.events ?? ["fault", "data-error", "suspended"],
  );
  const [other, setOther] = useState(
    (hook?.events ?? []).filter((e) => !EVENTS.includes(e as "all")).join(" "),
  );
  const words = (text: string) => text.split(/[\s,]+/).filter(Boolean);
  const all = [...events.filter((e) => EVENTS.includes(e as "all")), ...words(other)];
  const toggle = (e: string) =>
    setEvents(events.includes(e) ? events.filter((x) => x !== e) : [...events, e]);
  const action: HookAction =
    kind === "command"
      ? { command: command || "COMMAND" }
      : kind === "webhook"
        ? { webhook: address || "https://…" }
        : kind === "ntfy"
          ? {
              ntfy: {
                ...(was && "ntfy" in was ? was.ntfy : {}),
                url: topic || "https://…",
                priority: priority ? Number(priority) : null,
              },
            }
          : { mail: { relay: relay || "smtps://…", from: from || "FROM", to: to ? words(to) : ["TO"] } };
  const http = (text: string) => (text && !/^https?:\/\/./.test(text) ? S.hooks.badAddress : undefined);
  const badRelay = relay && !/^smtps?:\/\/./.test(relay) ? S.hooks.badRelay : undefined;
  const wrong =
    kind === "webhook"
      ? http(address)
      : kind === "ntfy"
        ? http(topic)
        : kind === "mail"
          ? badRelay
          : undefined;
  const said =
    kind === "command"
      ? command
      : kind === "webhook"
        ? address
        : kind === "ntfy"
          ? topic
          : relay && from && to;
  const kept = Boolean(hook?.has_secret) && Boolean(was) && kindOf(was as HookAction) === kind;
  return (
    <DeedDialog
      title={hook ? S.hooks.changeOf(hook.name) : S.hooks.addTitle}
      verb={S.hooks.save}
      deed={deeds.addHook(name, all, action, {
        ...(kind === "command" ? {} : drop ? { secret: "" } : secret ? { secret } : {}),
        limit: limit ? Number(limit) : undefined,
      })}
      missing={
        !name
          ? S.datasets.nameIt
          : !all.length
            ? S.hooks.chooseEvents
            : !said
              ? S.hooks.sayWhat
              : (wrong ?? (limit && !(Number(limit) > 0) ? S.users.badDays : undefined))
      }
      done={reload}
    >
      <div class="fields">
        {hook ? null : <TextField label={S.name} value={name} set={setName} focus placeholder="mail" />}
        <Choice label={S.hooks.what} value={kind} set={setKind} options={S.hooks.kinds} />
      </div>
      {kind === "mail" ? (
        <div class="fields">
          <TextField
            label={S.hooks.relay}
            value={relay}
            set={setRelay}
            hint={S.hooks.relayHint}
            error={badRelay}
            placeholder="smtps://nas@mail.example"
          />
          <TextField label={S.hooks.from} value={from} set={setFrom} placeholder="nas@example.org" />
          <TextField label={S.hooks.to} value={to} set={setTo} hint={S.hooks.toHint} />
        </div>
      ) : kind === "ntfy" ? (
        <div class="fields">
          <TextField
            label={S.hooks.topic}
            value={topic}
            set={setTopic}
            hint={S.hooks.topicHint}
            error={http(topic)}
          />
          <Choice
            label={S.hooks.priority}
            value={priority}
            set={setPriority}
            options={S.hooks.priorities as readonly (readonly [string, string])[]}
          />
        </div>
      ) : kind === "webhook" ? (
        <TextField
          label={S.hooks.webhook}
          value={address}
          set={setAddress}
          placeholder="https://monitor.example/events"
          hint={S.hooks.webhookHint}
          error={http(address)}
        />
      ) : (
        <TextField
          label={S.hooks.command}
          value={command}
          set={setCommand}
          placeholder={'logger "$ZEVENT_POOL: $ZEVENT_CLASS"'}
          hint={S.hooks.commandHint}
        />
      )}
      {kind === "command" ? null : (
        <TextField
          label={kind === "mail" ? S.hooks.password : S.hooks.token}
          type="password"
          autocomplete="new-password"
          value={secret}
          set={setSecret}
          hint={kept ? S.hooks.keeps : kind === "mail" ? undefined : S.hooks.tokenHint}
        />
      )}
      {kept && kind !== "command" ? <Check label={S.hooks.dropSecret} value={drop} set={setDrop} /> : null}
      <fieldset>
        <legend>{S.hooks.when}</legend>
        <div class="fields">
          {EVENTS.map((e) => (
            <Check key={e} label={S.hooks.events[e] ?? e} value={events.includes(e)} set={() => toggle(e)} />
          ))}
        </div>
      </fieldset>
      <TextField label={S.hooks.other} value={other} set={setOther} hint={S.hooks.otherHint} />
      <TextField label={S.hooks.limit} type="number" value={limit} set={setLimit} placeholder="30" />
    </DeedDialog>
  );
}
