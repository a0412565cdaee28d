// A new pool: disks and what each is for, layouts side by side, options, what cannot be undone, the command line.
import { useState } from "preact/hooks";
import { ApiError, ask } from "../api/client";
import * as deeds from "../deeds";
import type { Use } from "../deeds";
import { base, readSize, size } from "../format";
import { DeedDialog, note, openDialog } from "../parts/deed";
import { DiskChoice, type Picked } from "../parts/disks";
import { Badge, Button, Card, Check, Choice, CommandLine, Fault, Icon, TextField } from "../parts/ui";
import { go } from "../route";
import { pools } from "../state";
import { S } from "../strings";
import { choiceOf, described, Layouts, survivesText, useLayouts, usual } from "./create-pool/layouts";

const USES: Use[] = ["data", "spare", "special", "dedup", "log", "cache"];

export function CreatePool() {
  const [picked, setPicked] = useState<Picked[]>([]);
  const [uses, setUses] = useState<Record<string, Use>>({});
  const [wanted, setWanted] = useState("");
  const [name, setName] = useState("");
  const [compression, setCompression] = useState("on");
  const [ashift, setAshift] = useState("");
  const [encrypted, setEncrypted] = useState(false);
  const [passphrase, setPassphrase] = useState("");
  const [altroot, setAltroot] = useState("");
  const [force, setForce] = useState(false);
  const [each, setEach] = useState("");
  const [checked, setChecked] = useState<{ line: string; said: ApiError | "good" } | undefined>();
  const useOf = (p: Picked): Use => uses[p.path] ?? "data";
  const paths = picked.map((p) => p.path);
  const by = Object.fromEntries(
    USES.map((u) => [u, picked.filter((p) => useOf(p) === u).map((p) => p.path)]),
  ) as Record<Use, string[]>;
  const data = picked.filter((p) => useOf(p) === "data");
  const sizes = data.map((p) => p.size ?? readSize(each) ?? 0);
  const least = sizes.length ? Math.min(...sizes) : 0;
  const { list, modelled } = useLayouts(
    data.length,
    least,
    data.some((p) => p.rotational),
  );
  const fits = deeds.devicesOf(wanted) === data.length && data.length > 0;
  const layout = fits ? wanted : usual(list, data.length);
  const now = choiceOf(list, layout);
  const deed = (dryRun: boolean) =>
    deeds.createPool({
      name,
      layout,
      devices: by,
      properties: ashift ? [["ashift", ashift]] : [],
      rootProperties: [
        ...(compression === "on" ? [] : [["compression", compression] as [string, string]]),
        ...(encrypted
          ? ([
              ["encryption", "on"],
              ["keyformat", "passphrase"],
            ] as [string, string][])
          : []),
      ],
      ...(encrypted ? { passphrase } : {}),
      ...(altroot ? { altroot } : {}),
      force,
      dryRun,
    });
  const wrongName =
    name && !/^[A-Za-z][A-Za-z0-9_.: -]*$/.test(name)
      ? S.create.badName
      : pools.value.has(name)
        ? S.create.taken
        : undefined;
  const missing = !data.length
    ? S.create.noDisks
    : !now
      ? S.create.wrongLayout
      : !name
        ? S.create.noName
        : (wrongName ?? (encrypted && passphrase.length < 8 ? S.create.shortPassphrase : undefined));
  const line = deed(false).line;
  const check = async () => {
    setChecked(undefined);
    try {
      await ask("pool-create", deed(true).request as never);
      setChecked({ line, said: "good" });
    } catch (error) {
      setChecked({
        line,
        said: error instanceof ApiError ? error : new ApiError("failed", String(error), 0),
      });
    }
  };
  const said = checked?.line === line ? checked.said : undefined;
  const used = picked.filter((p) => p.inUse);
  const beside = USES.filter((u) => u !== "data" && by[u].length).map(
    (u) => `${S.create.use[u].split(":")[0]} ${by[u].map(base).join(", ")}`,
  );
  const usable = now?.modelled ? size(Math.round(now.modelled.usable_bytes)) : "";
  return (
    <>
      <h1>{S.nav.create}</h1>
      <Card title={S.create.step1}>
        <DiskChoice picked={picked} set={setPicked} />
        {picked.some((p) => !p.size) ? (
          <div class="filter">
            <TextField
              label={S.create.sizeEach}
              value={each}
              set={setEach}
              placeholder="4T"
              hint={S.create.sizeEachHint}
            />
          </div>
        ) : null}
        {picked.length > 1 ? (
          <details>
            <summary>{S.create.uses}</summary>
            <div class="stack">
              <p class="hint">{S.create.usesText}</p>
              <div class="fields">
                {picked.map((p) => (
                  <Choice
                    key={p.path}
                    label={S.create.useOf(base(p.path))}
                    value={useOf(p)}
                    set={(u) => setUses({ ...uses, [p.path]: u })}
                    options={USES.map((u) => [u, S.create.use[u]] as const)}
                  />
                ))}
              </div>
            </div>
          </details>
        ) : null}
      </Card>
      <Card title={S.create.step2}>
        <p class="muted">{S.create.layoutText(data.length)}</p>
        {data.length ? (
          <Layouts list={list} modelled={modelled} chosen={layout} set={setWanted} disks={data.length} />
        ) : null}
      </Card>
      <Card title={S.create.step3}>
        <div class="fields">
          <TextField label={S.name} value={name} set={setName} placeholder="tank" error={wrongName} />
          <Choice
            label={S.create.compression}
            value={compression}
            set={setCompression}
            options={S.create.compressions}
          />
          <Choice
            label={S.create.ashift}
            value={ashift}
            set={setAshift}
            options={S.create.ashifts}
            hint={S.create.ashiftText}
          />
          <TextField label={S.create.altroot} value={altroot} set={setAltroot} hint={S.create.altrootText} />
        </div>
        <Check label={S.create.encrypt} hint={S.create.encryptText} value={encrypted} set={setEncrypted} />
        {encrypted ? (
          <div class="filter">
            <TextField
              label={S.create.passphrase}
              type="password"
              autocomplete="new-password"
              value={passphrase}
              set={setPassphrase}
            />
          </div>
        ) : null}
        <Check label={S.force} hint={S.pool.forceDisk} value={force} set={setForce} />
      </Card>
      <Card title={S.create.step4}>
        {now ? (
          <p class="split">
            <span>{S.create.summary(described(layout), usable)}</span>
            <Badge tone={now.survives ? "good" : "bad"}>
              {S.create.mayFailOf(survivesText(now.survives))}
            </Badge>
          </p>
        ) : null}
        {beside.length ? <p>{S.create.usedFor(beside.join("; "))}</p> : null}
        <div class="warning">
          <Icon name="warn" />
          <div>
            <p>{S.create.forever}</p>
            {used.map((p) => (
              <p key={p.path}>
                <strong>{S.disks.willBeLost(p.path, p.inUse ?? "")}</strong>
              </p>
            ))}
            {now && !now.survives ? <p>{S.create.stripeWarning}</p> : null}
            {now?.survives && (by.special.length === 1 || by.dedup.length === 1) ? (
              <p>{S.create.singleSpecial}</p>
            ) : null}
          </div>
        </div>
        <CommandLine line={line} label={S.sameAs} />
        {said === "good" ? (
          <p class="empty good">
            <Icon name="good" /> {S.create.checkedGood}
          </p>
        ) : said ? (
          <Fault error={said} />
        ) : null}
        <div class="actions">
          <Button needs="pool-create" off={missing} onClick={check}>
            {S.create.check}
          </Button>
          <Button
            needs="pool-create"
            kind="main"
            off={missing}
            onClick={() =>
              openDialog(
                <DeedDialog
                  title={S.create.title(name)}
                  verb={S.create.verb}
                  deed={deed(false)}
                  typed={name}
                  danger
                  said={S.create.made(name)}
                  done={() => {
                    note(S.create.next);
                    go("pool", name);
                  }}
                >
                  <div class="warning">
                    <Icon name="warn" />
                    <div>
                      <p>{S.create.loses(paths.length)}</p>
                      <ul>
                        {paths.map((p) => (
                          <li key={p}>
                            <code>{p}</code>
                          </li>
                        ))}
                      </ul>
                    </div>
                  </div>
                </DeedDialog>,
              )
            }
          >
            {S.create.verb} …
          </Button>
          {missing ? <span class="muted small">{missing}</span> : null}
        </div>
      </Card>
    </>
  );
}
