// A new pool: disks, layouts side by side, options, what cannot be undone, the command line.
import { useState } from "preact/hooks";
import { ApiError, ask } from "../api/client";
import * as deeds from "../deeds";
import type { Layout } from "../deeds";
import { readSize, size } from "../format";
import { DeedDialog, note, openDialog } from "../parts/deed";
import { DiskChoice, type Picked } from "../parts/disks";
import { Badge, Button, Card, Check, Choice, CommandLine, Fault, Icon, Table, TextField } from "../parts/ui";
import { go } from "../route";
import { pools } from "../state";
import { S } from "../strings";

const LAYOUTS: Layout[] = ["stripe", "mirror", "mirrors", "raidz1", "raidz2", "raidz3"];

interface Judged {
  layout: Layout;
  fits: boolean;
  why?: string;
  usable: number;
  survives: string;
  reads: string;
  writes: string;
}
/** What a layout gives with `n` disks of at least `bytes`. Rates are in those of one disk. */
export function judge(layout: Layout, n: number, bytes: number, total: number): Judged {
  // A thirty-second is kept back by every pool.
  const keep = 31 / 32;
  const made = (
    fits: boolean,
    usable: number,
    survives: string,
    reads: string,
    writes: string,
    least: string,
  ): Judged => ({
    layout,
    fits,
    ...(fits ? {} : { why: least }),
    usable: usable * keep,
    survives,
    reads,
    writes,
  });
  const T = S.create;
  if (layout === "stripe") return made(n >= 1, total, T.survivesNone, T.times(n), T.times(n), T.needs(1));
  if (layout === "mirror") return made(n >= 2, bytes, T.survives(n - 1), T.times(n), T.times(1), T.needs(2));
  if (layout === "mirrors")
    return made(
      n >= 4 && n % 2 === 0,
      bytes * (n / 2),
      T.survivesPair,
      T.times(n),
      T.times(n / 2),
      T.needsEven,
    );
  const parity = Number(layout.slice(5));
  return made(
    n > parity + 1,
    bytes * (n - parity),
    T.survives(parity),
    T.raidz(n - parity),
    T.raidz(n - parity),
    T.needs(parity + 2),
  );
}

export function CreatePool() {
  const [picked, setPicked] = useState<Picked[]>([]);
  const [spares, setSpares] = useState("");
  const [layout, setLayout] = useState<Layout>("mirror");
  const [name, setName] = useState("");
  const [compression, setCompression] = useState("on");
  const [ashift, setAshift] = useState("");
  const [encrypted, setEncrypted] = useState(false);
  const [passphrase, setPassphrase] = useState("");
  const [altroot, setAltroot] = useState("");
  const [force, setForce] = useState(false);
  const [each, setEach] = useState("");
  const [checked, setChecked] = useState<ApiError | "good" | undefined>();
  const paths = picked.map((p) => p.path);
  const known = picked.map((p) => p.size ?? readSize(each) ?? 0);
  const least = known.length ? Math.min(...known) : 0;
  const all = LAYOUTS.map((l) =>
    judge(
      l,
      picked.length,
      least,
      known.reduce((a, b) => a + b, 0),
    ),
  );
  const now = all.find((j) => j.layout === layout);
  const deed = (dryRun: boolean) =>
    deeds.createPool({
      name,
      layout,
      devices: paths,
      spares: spares.split(/[\s,]+/).filter(Boolean),
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
  const missing = !picked.length
    ? S.create.noDisks
    : !now?.fits
      ? now?.why
      : !name
        ? S.create.noName
        : (wrongName ?? (encrypted && passphrase.length < 8 ? S.create.shortPassphrase : undefined));
  const check = async () => {
    setChecked(undefined);
    try {
      const request = deed(true);
      await ask("pool-create", request.request as never);
      setChecked("good");
    } catch (error) {
      setChecked(error instanceof ApiError ? error : new ApiError("failed", String(error), 0));
    }
  };
  const used = picked.filter((p) => p.inUse);
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
      </Card>
      <Card title={S.create.step2}>
        <p class="muted">{S.create.layoutText(picked.length)}</p>
        <Table
          label={S.create.step2}
          head={
            <>
              <th scope="col">{S.create.layout}</th>
              <th scope="col" class="num">
                {S.create.usable}
              </th>
              <th scope="col">{S.create.mayFail}</th>
              <th scope="col" class="wide">
                {S.create.reads}
              </th>
              <th scope="col" class="wide">
                {S.create.writes}
              </th>
            </>
          }
        >
          {all.map((j) => (
            <tr key={j.layout} class={j.layout === layout ? "chosen" : j.fits ? "" : "dim"}>
              <td>
                <label class="check">
                  <input
                    type="radio"
                    name="layout"
                    checked={layout === j.layout}
                    onChange={() => setLayout(j.layout)}
                  />
                  <span>
                    <strong>{S.create.layouts[j.layout].name}</strong>
                    <span class="hint block">
                      {j.fits || !picked.length ? S.create.layouts[j.layout].text : j.why}
                    </span>
                  </span>
                </label>
              </td>
              <td class="num">{j.fits && least ? size(j.usable) : "–"}</td>
              <td>{j.fits ? j.survives : "–"}</td>
              <td class="wide">{j.fits ? j.reads : "–"}</td>
              <td class="wide">{j.fits ? j.writes : "–"}</td>
            </tr>
          ))}
        </Table>
        <p class="hint">{S.create.modelled}</p>
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
          <TextField label={S.create.spares} value={spares} set={setSpares} hint={S.create.sparesText} />
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
        {picked.length ? (
          <p class="split">
            <span>
              {S.create.summary(
                S.create.layouts[layout].name,
                picked.length,
                now?.fits && least ? size(now.usable) : "",
              )}
            </span>
            {now?.fits ? (
              <Badge tone={layout === "stripe" ? "bad" : "good"}>{S.create.mayFailOf(now.survives)}</Badge>
            ) : null}
          </p>
        ) : null}
        <div class="warning">
          <Icon name="warn" />
          <div>
            <p>{S.create.forever}</p>
            {used.map((p) => (
              <p key={p.path}>
                <strong>{S.disks.willBeLost(p.path, p.inUse ?? "")}</strong>
              </p>
            ))}
            {layout === "stripe" ? <p>{S.create.stripeWarning}</p> : null}
          </div>
        </div>
        <CommandLine line={deed(false).line} label={S.sameAs} />
        {checked === "good" ? (
          <p class="empty good">
            <Icon name="good" /> {S.create.checkedGood}
          </p>
        ) : checked ? (
          <Fault error={checked} />
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
