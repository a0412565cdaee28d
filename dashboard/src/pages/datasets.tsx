// All filesystems and volumes as a tree of any length.
import { useMemo, useState } from "preact/hooks";
import type { Schemas } from "../api/client";
import * as deeds from "../deeds";
import { readSize, size } from "../format";
import { DeedDialog, openDialog } from "../parts/deed";
import { Button, Card, Cell, Check, Choice, Empty, Fault, Icon, TextField, Virtual } from "../parts/ui";
import { useQuery } from "../query";
import { go, route, to } from "../route";
import { pools, type Dataset, type News } from "../state";
import { S } from "../strings";

export const datasetNews = (news: News) =>
  ["created", "destroyed", "renamed", "promoted", "replaced", "resized", "set", "opened", "closed"].includes(
    news.what,
  );

const COLUMNS = [
  "used",
  "available",
  "referenced",
  "compressratio",
  "mountpoint",
  "mounted",
  "volsize",
  "encryption",
  "keystatus",
];
export type Entry = Schemas["DatasetEntry"];
export const valueOf = (entry: Entry | undefined, name: string) =>
  entry?.properties.find((p) => p.name === name)?.value ?? "–";
export const numberOf = (entry: Entry | undefined, name: string) =>
  Number(entry?.properties.find((p) => p.name === name)?.parsable ?? 0);

export function Datasets() {
  const only = route.value.name;
  const [filter, setFilter] = useState("");
  const [shut, setShut] = useState<ReadonlySet<string>>(new Set());
  const listed = useQuery(
    "dataset-list",
    { names: only ? [only] : [], kinds: ["filesystem", "volume"], properties: COLUMNS },
    { every: 15_000, on: datasetNews },
  );
  const known = useMemo(() => new Map((listed.data?.entries ?? []).map((e) => [e.name, e])), [listed.data]);
  const all = useMemo(() => {
    const list: Dataset[] = [];
    for (const pool of pools.value.values())
      if (!only || pool.name === only) list.push(...pool.datasets.values());
    // A slash sorts before all others, so that children follow their parents.
    return list
      .map((d) => ({ ...d, key: d.name.replaceAll("/", "\u0001") }))
      .sort((a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0));
  }, [pools.value, only]);
  const parents = useMemo(() => {
    const found = new Set<string>();
    for (const d of all) {
      const cut = d.name.lastIndexOf("/");
      if (cut > 0) found.add(d.name.slice(0, cut));
    }
    return found;
  }, [all]);
  const wanted = filter.toLowerCase();
  const rows = useMemo(() => {
    if (wanted) return all.filter((d) => d.name.toLowerCase().includes(wanted));
    if (!shut.size) return all;
    return all.filter((d) => {
      for (let cut = d.name.lastIndexOf("/"); cut > 0; cut = d.name.lastIndexOf("/", cut - 1))
        if (shut.has(d.name.slice(0, cut))) return false;
      return true;
    });
  }, [all, shut, wanted]);
  const toggle = (name: string) => {
    const next = new Set(shut);
    if (!next.delete(name)) next.add(name);
    setShut(next);
  };
  const most = Math.max(1, ...rows.slice(0, 2000).map((d) => numberOf(known.get(d.name), "used")));
  return (
    <>
      <div class="page-head">
        <h1>{only ? S.datasets.titleOf(only) : S.nav.datasets}</h1>
        <div class="actions">
          <Button
            needs="dataset-create"
            kind="main"
            off={pools.value.size ? undefined : S.datasets.noPool}
            onClick={() => openDialog(<Create above={only || [...pools.value.keys()][0] || ""} />)}
          >
            {S.datasets.create}
          </Button>
        </div>
      </div>
      <Card>
        <div class="tools">
          <TextField label={S.search} value={filter} set={setFilter} />
          <span class="muted small num">{S.datasets.shown(rows.length, all.length)}</span>
          <span class="actions">
            <Button kind="quiet" onClick={() => setShut(new Set())}>
              {S.datasets.openAll}
            </Button>
            <Button kind="quiet" onClick={() => setShut(new Set(parents))}>
              {S.datasets.shutAll}
            </Button>
          </span>
        </div>
        {listed.error ? <Fault error={listed.error} retry={listed.reload} /> : null}
        {rows.length ? (
          <Virtual
            rows={rows}
            kind="cols-datasets"
            label={S.nav.datasets}
            most={1400}
            keyOf={(d) => d.name}
            head={
              <>
                <Cell head>{S.name}</Cell>
                <Cell head kind="num">
                  {S.datasets.used}
                </Cell>
                <Cell head kind="num wide">
                  {S.datasets.available}
                </Cell>
                <Cell head kind="num wide">
                  {S.datasets.referenced}
                </Cell>
                <Cell head kind="num wide2">
                  {S.datasets.ratio}
                </Cell>
                <Cell head kind="wide2">
                  {S.datasets.where}
                </Cell>
              </>
            }
            row={(d) => {
              const entry = known.get(d.name);
              const depth = wanted ? 0 : d.name.split("/").length - (only ? 1 : 1);
              const has = parents.has(d.name) && !wanted;
              const locked = valueOf(entry, "keystatus") === "unavailable";
              return (
                <>
                  <Cell kind="row" title={d.name}>
                    <span style={{ width: `${Math.min(depth, 12) * 16}px`, flex: "none" }} />
                    {has ? (
                      <button
                        type="button"
                        class="twist"
                        aria-expanded={!shut.has(d.name)}
                        aria-label={S.datasets.below(d.name)}
                        onClick={() => toggle(d.name)}
                      >
                        <Icon name={shut.has(d.name) ? "open" : "shut"} />
                      </button>
                    ) : (
                      <span class="twist" />
                    )}
                    <Icon name={d.kind === "volume" ? "volume" : "dataset"} />
                    <a class="ellipsis" href={to("dataset", d.name)}>
                      {wanted ? d.name : d.name.slice(d.name.lastIndexOf("/") + 1)}
                    </a>
                    {locked ? <Icon name="lock" /> : null}
                    {locked ? <span class="sr">{S.datasets.locked}</span> : null}
                  </Cell>
                  <Cell kind="num">
                    {valueOf(entry, "used")}
                    <span class="bar" aria-hidden="true">
                      <span style={{ width: `${(numberOf(entry, "used") / most) * 100}%` }} />
                    </span>
                  </Cell>
                  <Cell kind="num wide">{valueOf(entry, "available")}</Cell>
                  <Cell kind="num wide">{valueOf(entry, "referenced")}</Cell>
                  <Cell kind="num wide2">{valueOf(entry, "compressratio")}</Cell>
                  <Cell kind="wide2 muted">
                    {d.kind === "volume"
                      ? S.datasets.volumeOf(size(d.volume_bytes))
                      : valueOf(entry, "mountpoint")}
                  </Cell>
                </>
              );
            }}
          />
        ) : (
          <Empty>{all.length ? S.nothingFound : S.overview.noPools}</Empty>
        )}
      </Card>
    </>
  );
}

export function Create({ above }: { above: string }) {
  const [kind, setKind] = useState<"filesystem" | "volume">("filesystem");
  const [name, setName] = useState(`${above}/`);
  const [bytes, setBytes] = useState("");
  const [sparse, setSparse] = useState(true);
  const [block, setBlock] = useState("");
  const [compression, setCompression] = useState("");
  const [record, setRecord] = useState("");
  const [quota, setQuota] = useState("");
  const [mountpoint, setMountpoint] = useState("");
  const [encrypted, setEncrypted] = useState(false);
  const [passphrase, setPassphrase] = useState("");
  const [parents, setParents] = useState(false);
  const volumeBytes = readSize(bytes);
  const volume = kind === "volume";
  const properties: [string, string][] = [];
  if (compression) properties.push(["compression", compression]);
  if (volume && block) properties.push(["volblocksize", block]);
  if (!volume && record) properties.push(["recordsize", record]);
  if (!volume && quota) properties.push(["quota", quota]);
  if (!volume && mountpoint) properties.push(["mountpoint", mountpoint]);
  if (encrypted) properties.push(["encryption", "on"], ["keyformat", "passphrase"]);
  const missing =
    !name.includes("/") || name.endsWith("/")
      ? S.datasets.nameIt
      : volume && !volumeBytes
        ? S.datasets.sizeIt
        : encrypted && passphrase.length < 8
          ? S.create.shortPassphrase
          : undefined;
  return (
    <DeedDialog
      title={S.datasets.createTitle}
      verb={S.create.verb}
      missing={missing}
      deed={deeds.createDataset({
        name,
        volumeBytes: volume ? (volumeBytes ?? 0) : undefined,
        volumeText: bytes || "SIZE",
        sparse,
        parents,
        properties,
        passphrase: encrypted ? passphrase : "",
      })}
      said={S.datasets.created(name)}
      done={() => go("dataset", name)}
    >
      <Choice
        label={S.datasets.kind}
        value={kind}
        set={setKind}
        options={[
          ["filesystem", S.datasets.filesystem],
          ["volume", S.datasets.volume],
        ]}
      />
      <TextField label={S.name} value={name} set={setName} focus hint={S.datasets.nameHint} />
      <div class="fields">
        {volume ? (
          <>
            <TextField
              label={S.size}
              value={bytes}
              set={setBytes}
              placeholder="100G"
              error={bytes && !volumeBytes ? S.datasets.badSize : undefined}
            />
            <Choice
              label={S.datasets.block}
              value={block}
              set={setBlock}
              options={[
                ["", "16K"] as const,
                ...["4K", "8K", "32K", "64K", "128K"].map((v) => [v, v] as const),
              ]}
              hint={S.datasets.blockHint}
            />
          </>
        ) : (
          <>
            <TextField
              label={S.datasets.quota}
              value={quota}
              set={setQuota}
              placeholder="100G"
              hint={S.datasets.quotaHint}
            />
            <TextField
              label={S.datasets.mountpoint}
              value={mountpoint}
              set={setMountpoint}
              hint={S.datasets.mountpointHint}
            />
            <Choice
              label={S.datasets.record}
              value={record}
              set={setRecord}
              options={[
                ["", S.datasets.inherited] as const,
                ...(S.values["recordsize"] ?? []).map((v) => [v, v] as const),
              ]}
              hint={S.datasets.recordHint}
            />
          </>
        )}
        <Choice
          label={S.create.compression}
          value={compression}
          set={setCompression}
          options={[
            ["", S.datasets.inherited] as const,
            ...["lz4", "zstd", "gzip", "off"].map((v) => [v, v] as const),
          ]}
        />
      </div>
      {volume ? (
        <Check label={S.datasets.sparse} hint={S.datasets.sparseHint} value={sparse} set={setSparse} />
      ) : null}
      <Check label={S.datasets.parents} value={parents} set={setParents} />
      <Check label={S.datasets.encrypt} hint={S.create.encryptText} value={encrypted} set={setEncrypted} />
      {encrypted ? (
        <TextField
          label={S.create.passphrase}
          type="password"
          autocomplete="new-password"
          value={passphrase}
          set={setPassphrase}
        />
      ) : null}
    </DeedDialog>
  );
}
