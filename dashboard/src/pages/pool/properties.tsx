// The properties of a pool.
import { useState } from "preact/hooks";
import * as deeds from "../../deeds";
import { DeedDialog, openDialog } from "../../parts/deed";
import { Button, Card, Shown, Table, TextField } from "../../parts/ui";
import { useQuery } from "../../query";
import { S } from "../../strings";

export function Properties({ pool }: { pool: string }) {
  const listed = useQuery(
    "pool-list",
    { pools: [pool], properties: ["all"] },
    { on: (n) => n.what === "pool-set", every: 20_000 },
  );
  const [filter, setFilter] = useState("");
  return (
    <Card title={S.pool.tabs.properties}>
      <div class="filter">
        <TextField label={S.search} value={filter} set={setFilter} />
      </div>
      <Shown of={listed}>
        {(answer) => {
          const rows = (answer.entries[0]?.properties ?? []).filter((p) => p.name.includes(filter));
          return rows.length ? (
            <Table
              label={S.pool.tabs.properties}
              head={
                <>
                  <th scope="col">{S.name}</th>
                  <th scope="col">{S.value}</th>
                  <th scope="col" class="wide">
                    {S.source}
                  </th>
                  <th scope="col">
                    <span class="sr">{S.actions}</span>
                  </th>
                </>
              }
            >
              {rows.map((p) => (
                <tr key={p.name}>
                  <td>
                    <code>{p.name}</code>
                    {S.poolProperty[p.name] ? <p class="hint">{S.poolProperty[p.name]}</p> : null}
                  </td>
                  <td class="value">{p.value ?? "–"}</td>
                  <td class="wide muted">{S.sourceOf(p.source)}</td>
                  <td class="num">
                    {p.source !== "none" || p.name === "comment" ? (
                      <Button
                        needs="pool-set"
                        kind="quiet"
                        label={S.change(p.name)}
                        onClick={() =>
                          openDialog(<SetPool pool={pool} name={p.name} value={p.value ?? ""} />)
                        }
                      >
                        {S.set} …
                      </Button>
                    ) : null}
                  </td>
                </tr>
              ))}
            </Table>
          ) : (
            <p class="empty">{S.nothingFound}</p>
          );
        }}
      </Shown>
    </Card>
  );
}
function SetPool({ pool, name, value }: { pool: string; name: string; value: string }) {
  const [next, setNext] = useState(value === "-" ? "" : value);
  const feature = name.startsWith("feature@");
  return (
    <DeedDialog
      title={S.change(name)}
      verb={S.set}
      deed={deeds.setPool(pool, name, feature ? "enabled" : next)}
      {...(feature ? { typed: pool, danger: true } : {})}
    >
      {S.poolProperty[name] ? <p>{S.poolProperty[name]}</p> : null}
      {feature ? (
        <p>{S.pool.featureText}</p>
      ) : (
        <TextField label={S.value} value={next} set={setNext} focus list={S.values[name] ?? []} />
      )}
    </DeedDialog>
  );
}
