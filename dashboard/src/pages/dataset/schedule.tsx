// Snapshots that the daemon takes by itself.
import { useState } from "preact/hooks";
import * as deeds from "../../deeds";
import { ago } from "../../format";
import { DeedDialog, openDialog } from "../../parts/deed";
import { Button, Card, Check, Empty, Facts, Shown, Table, TextField } from "../../parts/ui";
import { useQuery } from "../../query";
import { S } from "../../strings";

const KINDS = ["frequent", "hourly", "daily", "weekly", "monthly", "yearly"] as const;

export function Schedule({ name }: { name: string }) {
  const listed = useQuery(
    "snapshot-schedules",
    { datasets: [name] },
    { every: 30_000, on: (n) => n.what === "set" || n.what === "created" },
  );
  return (
    <Card
      title={S.dataset.tabs.schedule}
      actions={
        <Button
          needs="property-set"
          onClick={() =>
            openDialog(
              <SetSchedule
                name={name}
                now={listed.data?.entries.find((e) => e.dataset === name)?.schedule ?? ""}
              />,
            )
          }
        >
          {S.pool.schedule}
        </Button>
      }
    >
      <p class="muted">{S.dataset.scheduleText}</p>
      <Shown of={listed}>
        {(answer) => {
          const own = answer.entries.find((e) => e.dataset === name);
          if (!own) return <Empty>{S.dataset.noSchedule}</Empty>;
          return (
            <>
              <Facts
                of={[
                  [S.value, own.schedule],
                  [S.source, S.sourceOf(own.source)],
                  own.idle ? [S.dataset.idle, own.idle] : false,
                ]}
              />
              <Table
                label={S.dataset.tabs.schedule}
                head={
                  <>
                    <th scope="col">{S.dataset.each}</th>
                    <th scope="col" class="num">
                      {S.dataset.keep}
                    </th>
                    <th scope="col" class="num">
                      {S.dataset.there}
                    </th>
                    <th scope="col">{S.dataset.newest}</th>
                  </>
                }
              >
                {own.kinds.map((k) => (
                  <tr key={k.kind}>
                    <td>{S.dataset.kinds[k.kind]}</td>
                    <td class="num">{k.keep}</td>
                    <td class="num">{k.there}</td>
                    <td>{k.newest ? ago(k.newest) : S.none}</td>
                  </tr>
                ))}
              </Table>
            </>
          );
        }}
      </Shown>
    </Card>
  );
}
function SetSchedule({ name, now }: { name: string; now: string }) {
  const given = new Map(now.split(",").map((p) => p.split("=") as [string, string | undefined]));
  const [keep, setKeep] = useState<Record<string, string>>(
    Object.fromEntries(KINDS.map((k) => [k, given.get(k) ?? ""])),
  );
  const [recursive, setRecursive] = useState(now ? given.has("recursive") : true);
  const parts = KINDS.filter((k) => Number(keep[k]) > 0).map((k) => `${k}=${Number(keep[k])}`);
  const value = parts.length ? [...parts, ...(recursive ? ["recursive"] : [])].join(",") : "off";
  return (
    <DeedDialog title={S.dataset.scheduleTitle(name)} verb={S.set} deed={deeds.snapshotSchedule(name, value)}>
      <p>{S.dataset.scheduleForm}</p>
      <div class="fields narrow">
        {KINDS.map((k) => (
          <TextField
            key={k}
            label={S.dataset.kinds[k]}
            type="number"
            value={keep[k] ?? ""}
            set={(v) => setKeep({ ...keep, [k]: v })}
            placeholder="0"
          />
        ))}
      </div>
      <Check label={S.dataset.recursive} value={recursive} set={setRecursive} />
    </DeedDialog>
  );
}
