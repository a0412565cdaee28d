// Sending snapshots of a dataset and receiving streams: through the browser, and as lines for a shell.
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError } from "../../api/client";
import * as deeds from "../../deeds";
import { base, commandLine, rate, size } from "../../format";
import { DeedButton, note } from "../../parts/deed";
import { estimate, canStream, MOST_IN_MEMORY, receive, save } from "../../parts/streams";
import {
  Button,
  Card,
  Check,
  Choice,
  CommandLine,
  Empty,
  Fault,
  Field,
  Progress,
  TextField,
} from "../../parts/ui";
import { usePages } from "../../query";
import { go } from "../../route";
import { done as tellDone, may } from "../../state";
import { S } from "../../strings";
import { valueOf, type Entry } from "../datasets";

const T = S.transfer;

export function Transfer({ entry }: { entry: Entry }) {
  const token = valueOf(entry, "receive_resume_token");
  return (
    <>
      {token && token !== "–" && token !== "-" ? (
        <Card title={T.token}>
          <p class="muted">{T.tokenText}</p>
          <CommandLine
            line={`zfs send -t ${token} | ssh ${location.hostname} zfs receive -s ${commandLine([entry.name])}`}
          />
          <div class="actions">
            <DeedButton
              label={T.giveUp}
              title={T.giveUpTitle(entry.name)}
              text={T.giveUpText}
              deed={() => deeds.abortReceive(entry.name)}
              typed={base(entry.name)}
              danger
              kind=""
            />
          </div>
        </Card>
      ) : null}
      <Send entry={entry} />
      <Receive name={entry.name} volume={entry.kind === "volume"} />
    </>
  );
}

interface Going {
  stop: AbortController;
  bytes: number;
  began: number;
}
const abortOf = (error: unknown) => error instanceof DOMException && error.name === "AbortError";
const errorOf = (error: unknown) =>
  error instanceof ApiError ? error : new ApiError("failed", String(error), 0);

function Send({ entry }: { entry: Entry }) {
  const name = entry.name;
  const listed = usePages(
    { names: [name], depth: 1, kinds: ["snapshot"], properties: ["creation"], newest_first: true },
    500,
    (n) => (n.what === "created" || n.what === "destroyed") && Boolean(n.name?.startsWith(`${name}@`)),
  );
  const tags = [...listed.entries].sort((a, b) => b.createtxg - a.createtxg).map((e) => e.name);
  const encrypted = !["off", "–", "-"].includes(valueOf(entry, "encryption"));
  const [wanted, setWanted] = useState("");
  const [since, setSince] = useState("");
  const [between, setBetween] = useState(true);
  const [recursive, setRecursive] = useState(false);
  const [raw, setRaw] = useState(encrypted);
  const [properties, setProperties] = useState(false);
  const [host, setHost] = useState("");
  const [target, setTarget] = useState(`backup/${base(name)}`);
  const [total, setTotal] = useState<number | ApiError | undefined>();
  const [going, setGoing] = useState<Going | undefined>();
  const [error, setError] = useState<ApiError | undefined>();
  const [said, setSaid] = useState("");
  const running = useRef<AbortController | undefined>(undefined);
  useEffect(() => () => running.current?.abort(), []);
  const snapshot = tags.includes(wanted) ? wanted : (tags[0] ?? "");
  const older = tags.slice(tags.indexOf(snapshot) + 1);
  const from = older.includes(since) ? since : "";
  const sent = deeds.send({
    snapshot,
    ...(from ? { from } : {}),
    between,
    recursive,
    raw,
    properties,
  });
  const key = JSON.stringify(sent.request);
  useEffect(() => {
    setTotal(undefined);
    if (!snapshot || !may("send")) return undefined;
    const mine = new AbortController();
    const timer = setTimeout(
      () =>
        estimate(sent.request, mine.signal).then(setTotal, (e: unknown) => {
          if (!mine.signal.aborted) setTotal(errorOf(e));
        }),
      250,
    );
    return () => {
      clearTimeout(timer);
      mine.abort();
    };
  }, [key]);
  const bytes = typeof total === "number" ? total : 0;
  const tooLarge = bytes > MOST_IN_MEMORY && !canStream() ? T.tooLarge(size(bytes)) : undefined;
  const file = `${snapshot.replace(/[/@:]/g, "-")}.zfs`;
  const start = async () => {
    const mine = new AbortController();
    running.current = mine;
    const began = Date.now();
    let shown = 0;
    setError(undefined);
    setSaid("");
    setGoing({ stop: mine, bytes: 0, began });
    try {
      const got = await save(
        sent.request,
        file,
        bytes,
        (n) => {
          if (Date.now() - shown < 200) return;
          shown = Date.now();
          setGoing({ stop: mine, bytes: n, began });
        },
        mine.signal,
      );
      for (const warning of got.warnings) note(warning, "warn");
      setSaid(`${T.saved(file, size(got.bytes))}${got.partial ? ` ${T.partial}` : ""}`);
    } catch (caught) {
      if (abortOf(caught)) setSaid(T.stopped);
      else if (caught instanceof ApiError && caught.kind === "connection")
        setError(new ApiError("failed", T.broke, 0));
      else if (caught instanceof ApiError && caught.kind === "too-large")
        setError(new ApiError("failed", T.tooLarge(size(MOST_IN_MEMORY)), 0));
      else setError(errorOf(caught));
    }
    setGoing(undefined);
  };
  const words = commandLine(sent.words);
  const there = commandLine(["zfs", "receive", "-s", target || "POOL/DATASET"]);
  return (
    <Card title={T.send}>
      <p class="muted">{T.sendText}</p>
      {listed.error ? <Fault error={listed.error} retry={listed.reload} /> : null}
      {!tags.length ? (
        listed.loaded ? (
          <Empty>{T.noSnapshots}</Empty>
        ) : (
          <p class="empty waiting">{S.loading}</p>
        )
      ) : (
        <>
          <div class="fields">
            <Choice
              label={T.upTo}
              value={snapshot}
              set={setWanted}
              options={tags.map((t) => [t, t.slice(name.length)] as const)}
            />
            <Choice
              label={T.since}
              value={from}
              set={setSince}
              options={[["", T.sinceNone] as const, ...older.map((t) => [t, t.slice(name.length)] as const)]}
            />
          </div>
          {from ? <Check label={T.between} value={between} set={setBetween} /> : null}
          <Check label={T.recursive} value={recursive} set={setRecursive} />
          {recursive ? null : <Check label={T.properties} value={properties} set={setProperties} />}
          <Check label={T.raw} value={raw} set={setRaw} />
          {!may("send") ? null : total instanceof ApiError ? (
            <Fault error={total} />
          ) : (
            <p role="status">
              {T.estimate}: {total === undefined ? T.estimating : T.about(size(total))}
            </p>
          )}
          {going ? (
            <Moving of={going} total={bytes} label={T.saving} stop={() => going.stop.abort()} />
          ) : (
            <div class="actions">
              <Button
                needs="send"
                kind="main"
                off={total instanceof ApiError ? total.message : tooLarge}
                onClick={() => void start()}
              >
                {T.toFile}
              </Button>
              <span class="hint">{tooLarge ?? T.toFileHint}</span>
            </div>
          )}
          {said ? <p role="status">{said}</p> : null}
          {error ? <Fault error={error} /> : null}
          <h3>{T.elsewhere}</h3>
          <div class="fields">
            <TextField label={T.host} value={host} set={setHost} hint={T.hostHint} placeholder="backup.lan" />
            <TextField label={T.target} value={target} set={setTarget} />
          </div>
          <CommandLine line={`${words} | ssh ${host || "HOST"} ${there}`} label={T.lines.once} />
          <CommandLine
            line={`cenote ${commandLine([
              "replicate",
              ...(recursive ? ["-r"] : []),
              ...(raw ? ["-w"] : []),
              name,
              `${host || "HOST"}:${target || "POOL/DATASET"}`,
            ])}`}
            label={T.lines.replicate}
          />
          <CommandLine line={`${words} > ${commandLine([file])}`} label={T.lines.file} />
        </>
      )}
    </Card>
  );
}

function Moving({ of, total, label, stop }: { of: Going; total: number; label: string; stop: () => void }) {
  const seconds = Math.max(0.5, (Date.now() - of.began) / 1000);
  return (
    <div class="stack" role="status">
      <p class="split small">
        <span>{label}</span>
        <span class="muted num">
          {T.progress(size(of.bytes), total ? size(total) : "", rate(of.bytes / seconds))}
        </span>
      </p>
      <Progress part={total ? of.bytes / total : 0} label={label} />
      <div class="actions">
        <Button onClick={stop}>{S.cancel}</Button>
      </div>
    </div>
  );
}

function Receive({ name, volume }: { name: string; volume: boolean }) {
  const [file, setFile] = useState<File | undefined>();
  const [into, setInto] = useState(volume ? name : `${name}/received`);
  const [force, setForce] = useState(false);
  const [noMount, setNoMount] = useState(false);
  const [resumable, setResumable] = useState(true);
  const [going, setGoing] = useState<Going | undefined>();
  const [error, setError] = useState<ApiError | undefined>();
  const [told, setTold] = useState<string[]>([]);
  const running = useRef<AbortController | undefined>(undefined);
  useEffect(() => () => running.current?.abort(), []);
  const taken = deeds.receive({ name: into, force, resumable, noMount });
  const start = async () => {
    if (!file) return;
    const mine = new AbortController();
    running.current = mine;
    const began = Date.now();
    setError(undefined);
    setTold([]);
    setGoing({ stop: mine, bytes: 0, began });
    try {
      const got = await receive(
        taken.request,
        file,
        (bytes) => setGoing({ stop: mine, bytes, began }),
        mine.signal,
      );
      for (const warning of got.warnings) note(warning, "warn");
      note(T.done(into));
      setTold(got.told);
      if (into !== name && !into.includes("@")) go("dataset", into);
    } catch (caught) {
      if (abortOf(caught)) setTold([T.broke]);
      else setError(errorOf(caught));
    }
    tellDone();
    setGoing(undefined);
  };
  return (
    <Card title={T.receive}>
      <p class="muted">{T.receiveText}</p>
      <div class="fields">
        <Field label={T.file}>
          {(id) => <input id={id} type="file" onChange={(e) => setFile(e.currentTarget.files?.[0])} />}
        </Field>
        <TextField label={T.into} value={into} set={setInto} hint={T.intoHint} />
      </div>
      <Check label={T.force} value={force} set={setForce} />
      <Check label={T.noMount} value={noMount} set={setNoMount} />
      <Check label={T.resumable} value={resumable} set={setResumable} />
      {going ? (
        <Moving
          of={going}
          total={file?.size ?? 0}
          label={going.bytes >= (file?.size ?? 0) ? T.uploaded : T.uploading}
          stop={() => going.stop.abort()}
        />
      ) : (
        <div class="actions">
          <Button
            needs="receive-stream"
            kind="main"
            off={file ? (into ? undefined : S.datasets.nameIt) : T.chooseFile}
            onClick={() => void start()}
          >
            {T.start}
          </Button>
        </div>
      )}
      {error ? <Fault error={error} /> : null}
      {told.length ? (
        <ul class="bullets small" aria-label={T.received}>
          {told.map((line, i) => (
            <li key={i}>{line}</li>
          ))}
        </ul>
      ) : null}
      <CommandLine
        line={`cenote ${commandLine(taken.words)} < ${commandLine([file?.name ?? "FILE"])}`}
        label={S.sameAs}
      />
    </Card>
  );
}
