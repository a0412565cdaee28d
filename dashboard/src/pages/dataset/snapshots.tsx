// The snapshots of a dataset.
import { useEffect, useMemo, useState } from "preact/hooks";
import { when } from "../../format";
import { openDialog } from "../../parts/deed";
import {
  Badge,
  Button,
  Card,
  Cell,
  Check,
  Empty,
  Failures,
  Fault,
  Icon,
  TextField,
  Virtual,
} from "../../parts/ui";
import { usePages } from "../../query";
import { to } from "../../route";
import { S } from "../../strings";
import { numberOf, valueOf } from "../datasets";
import { DestroyDataset } from "./deeds";

/** Rows of a page. */
const PAGE = 200;

export function Snapshots({ name }: { name: string }) {
  const [below, setBelow] = useState(false);
  const [filter, setFilter] = useState("");
  const [newest, setNewest] = useState(true);
  const [picked, setPicked] = useState<ReadonlySet<string>>(new Set());
  const listed = usePages(
    {
      names: [name],
      ...(below ? {} : { depth: 1 }),
      kinds: ["snapshot"],
      properties: ["used", "referenced", "creation", "userrefs"],
      newest_first: newest,
    },
    PAGE,
    (n) =>
      (n.what === "created" || n.what === "destroyed" || n.what === "renamed") &&
      Boolean(n.name?.startsWith(name)),
  );
  const rows = useMemo(
    () => (filter ? listed.entries.filter((e) => e.name.includes(filter)) : listed.entries),
    [listed.entries, filter],
  );
  // What is searched for may be on any page.
  useEffect(() => {
    if (filter) listed.more(10 * PAGE);
  }, [filter, listed.entries]);
  const mine = [...picked].filter((p) => rows.some((r) => r.name === p) && p.startsWith(`${name}@`));
  const toggle = (snapshot: string) => {
    const next = new Set(picked);
    if (!next.delete(snapshot)) next.add(snapshot);
    setPicked(next);
  };
  const several = `${name}@${mine.map((m) => m.slice(name.length + 1)).join(",")}`;
  return (
    <Card
      title={S.dataset.tabs.snapshots}
      actions={
        <Button
          needs="dataset-destroy"
          off={mine.length ? undefined : S.dataset.pickSome}
          onClick={() => openDialog(<DestroyDataset name={several} kind="snapshot" />)}
        >
          {S.dataset.destroyPicked(mine.length)}
        </Button>
      }
    >
      <div class="tools">
        <TextField label={S.search} value={filter} set={setFilter} />
        <Check label={S.dataset.withBelow} value={below} set={setBelow} />
        <Check label={S.dataset.newestFirst} value={newest} set={setNewest} />
        <span class="muted small num" role="status">
          {S.dataset.snapshotCount(rows.length, listed.has)}
        </span>
      </div>
      {listed.error ? <Fault error={listed.error} retry={listed.reload} /> : null}
      <Failures failed={listed.failed} />
      {rows.length ? (
        <Virtual
          rows={rows}
          kind="cols-snapshots"
          label={S.dataset.tabs.snapshots}
          keyOf={(e) => e.name}
          end={listed.has ? () => listed.more() : undefined}
          head={
            <>
              <Cell head>
                <span class="sr">{S.dataset.pick}</span>
              </Cell>
              <Cell head>{S.name}</Cell>
              <Cell head kind="num">
                {S.datasets.used}
              </Cell>
              <Cell head kind="num wide">
                {S.datasets.referenced}
              </Cell>
              <Cell head kind="wide">
                {S.dataset.creation}
              </Cell>
            </>
          }
          row={(e) => {
            const own = e.name.startsWith(`${name}@`);
            return (
              <>
                <Cell>
                  {own ? (
                    <input
                      type="checkbox"
                      checked={picked.has(e.name)}
                      aria-label={S.dataset.pickOf(e.name)}
                      onChange={() => toggle(e.name)}
                    />
                  ) : null}
                </Cell>
                <Cell kind="row" title={e.name}>
                  <Icon name="camera" />
                  <a class="ellipsis" href={to("dataset", e.name)}>
                    {own ? e.name.slice(name.length) : e.name}
                  </a>
                  {numberOf(e, "userrefs") > 0 ? <Badge tone="info">{S.dataset.held}</Badge> : null}
                </Cell>
                <Cell kind="num">{valueOf(e, "used")}</Cell>
                <Cell kind="num wide">{valueOf(e, "referenced")}</Cell>
                <Cell kind="wide muted num-left">{when(numberOf(e, "creation"))}</Cell>
              </>
            );
          }}
        />
      ) : listed.loaded && !(filter && listed.has) ? (
        listed.error ? null : (
          <Empty>{filter ? S.nothingFound : S.dataset.noSnapshots}</Empty>
        )
      ) : (
        <p class="empty waiting">{S.loading}</p>
      )}
    </Card>
  );
}
