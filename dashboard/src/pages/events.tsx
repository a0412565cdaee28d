// What happened: errors, changes of devices and pools.
import { useMemo, useState } from "preact/hooks";
import { commandLine, when } from "../format";
import * as deeds from "../deeds";
import { DeedButton, Modal } from "../parts/deed";
import {
  Badge,
  Button,
  Card,
  Cell,
  Check,
  CommandLine,
  Empty,
  Fault,
  Table,
  TextField,
  Virtual,
  type Tone,
} from "../parts/ui";
import { useQuery } from "../query";
import { events as fed, may, type PoolEvent } from "../state";
import { S } from "../strings";

function toneOf(kind: string): Tone {
  if (/ereport|data|suspend|io_failure/.test(kind)) return "bad";
  if (/statechange|removed|checksum|probe|delay/.test(kind)) return "warn";
  return "plain";
}
const field = (event: PoolEvent, name: string): string => {
  const found = (event.fields as unknown as [string, unknown][]).find((f) => f[0] === name)?.[1];
  return found === undefined ? "" : String(found);
};
const shortOf = (kind: string) => kind.replace(/^(sysevent|ereport|resource)\.fs\.zfs\./, "");

export function Events() {
  const asked = useQuery("events", { after: 0 });
  const [filter, setFilter] = useState("");
  const [quiet, setQuiet] = useState(true);
  const [shown, setShown] = useState<PoolEvent | null>(null);
  const [cleared, setCleared] = useState(0);
  const rows = useMemo(() => {
    const all = new Map<number, PoolEvent>();
    for (const e of asked.data?.events ?? []) all.set(e.eid, e);
    for (const e of fed.value) all.set(e.eid, e);
    const wanted = filter.toLowerCase();
    return [...all.values()]
      .filter((e) => e.eid > cleared)
      .filter((e) => !quiet || !/history_event|config_sync/.test(e.class))
      .filter(
        (e) =>
          !wanted || `${e.class} ${field(e, "pool")} ${field(e, "vdev_path")}`.toLowerCase().includes(wanted),
      )
      .sort((a, b) => b.eid - a.eid);
  }, [asked.data, fed.value, filter, quiet, cleared]);
  if (!may("events"))
    return (
      <>
        <h1>{S.nav.events}</h1>
        <Card>
          <Empty>{S.roleNeeded("operator", "viewer")}</Empty>
        </Card>
      </>
    );
  return (
    <>
      <h1>{S.nav.events}</h1>
      <Card>
        <div class="tools">
          <TextField label={S.search} value={filter} set={setFilter} />
          <Check label={S.events.quiet} value={quiet} set={setQuiet} />
          <span class="muted small num">{S.events.count(rows.length)}</span>
          <span class="actions">
            <DeedButton
              label={S.events.clear}
              text={S.events.clearText}
              deed={deeds.clearEvents}
              done={() => setCleared(Math.max(0, ...rows.map((r) => r.eid)))}
            />
          </span>
        </div>
        {asked.error ? <Fault error={asked.error} retry={asked.reload} /> : null}
        {rows.length ? (
          <Virtual
            rows={rows}
            kind="cols-events"
            label={S.nav.events}
            keyOf={(e) => String(e.eid)}
            row={(e) => (
              <>
                <Cell kind="muted num-left">{when(e.time[0])}</Cell>
                <Cell kind="row" title={e.class}>
                  <Badge tone={toneOf(e.class)}>{shortOf(e.class)}</Badge>
                </Cell>
                <Cell kind="wide">{field(e, "pool")}</Cell>
                <Cell kind="wide muted" title={field(e, "vdev_path") || field(e, "history_internal_str")}>
                  {field(e, "vdev_path") || field(e, "history_dsname") || field(e, "history_internal_str")}
                </Cell>
                <Cell>
                  <Button kind="quiet" onClick={() => setShown(e)} label={S.events.detailsOf(e.eid)}>
                    {S.details}
                  </Button>
                </Cell>
              </>
            )}
          />
        ) : (
          <Empty>{asked.busy && !asked.data ? S.loading : S.events.none}</Empty>
        )}
        <CommandLine line={`cenote ${commandLine(["zpool", "events", "-f"])}`} />
      </Card>
      {shown ? (
        <Modal close={() => setShown(null)}>
          <div class="deed">
            <h2 id="dialog-title">{shortOf(shown.class)}</h2>
            <div class="deed-body">
              <p class="muted">
                {shown.class}, {when(shown.time[0])}
              </p>
              <Table
                label={S.details}
                head={
                  <>
                    <th scope="col">{S.name}</th>
                    <th scope="col">{S.value}</th>
                  </>
                }
              >
                {(shown.fields as unknown as [string, unknown][]).map(([name, value]) => (
                  <tr key={name}>
                    <td>
                      <code>{name}</code>
                    </td>
                    <td class="value">{typeof value === "object" ? JSON.stringify(value) : String(value)}</td>
                  </tr>
                ))}
              </Table>
            </div>
            <footer>
              <Button onClick={() => setShown(null)}>{S.close}</Button>
            </footer>
          </div>
        </Modal>
      ) : null}
    </>
  );
}
