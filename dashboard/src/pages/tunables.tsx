// Numbers of the daemon that can be set while it runs.
import { useState } from "preact/hooks";
import type { Schemas } from "../api/client";
import * as deeds from "../deeds";
import { size } from "../format";
import { DeedDialog, openDialog } from "../parts/deed";
import { Badge, Button, Card, Check, CommandLine, Facts, Shown, Table, TextField } from "../parts/ui";
import { useQuery } from "../query";
import { S } from "../strings";

type Tunable = Schemas["TunableValue"];
function shown(t: Tunable, value: number): string {
  if (t.unit === "bytes") return value >= 1024 ? `${value} (${size(value)})` : String(value);
  if (t.unit === "bytes-per-second") return `${value} (${size(value)}/s)`;
  if (t.unit === "switch") return value ? "1 (on)" : "0 (off)";
  return `${value}${S.tunables.units[t.unit] ?? ""}`;
}

export function Tunables() {
  const [filter, setFilter] = useState("");
  const [own, setOwn] = useState(false);
  const list = useQuery("tunable-list", {}, { every: 30_000 });
  return (
    <>
      <h1>{S.nav.tunables}</h1>
      <Card>
        <p class="muted">{S.tunables.text}</p>
        <div class="tools">
          <TextField label={S.search} value={filter} set={setFilter} />
          <Check label={S.tunables.onlySet} value={own} set={setOwn} />
        </div>
        <Shown of={list} needs="tunable-list">
          {(all) => {
            const wanted = filter.toLowerCase();
            const rows = all.filter(
              (t) => (!own || t.is_set) && `${t.name} ${t.text}`.toLowerCase().includes(wanted),
            );
            return rows.length ? (
              <Table
                label={S.nav.tunables}
                head={
                  <>
                    <th scope="col">{S.name}</th>
                    <th scope="col" class="num">
                      {S.value}
                    </th>
                    <th scope="col">
                      <span class="sr">{S.actions}</span>
                    </th>
                  </>
                }
              >
                {rows.map((t) => (
                  <tr key={t.name}>
                    <td>
                      <code>{t.name}</code> {t.is_set ? <Badge tone="info">{S.tunables.isSet}</Badge> : null}
                      <p class="hint">{t.text}</p>
                    </td>
                    <td class="num">{shown(t, t.value)}</td>
                    <td>
                      <div class="actions end">
                        <Button
                          needs="tunable-set"
                          kind="quiet"
                          label={S.change(t.name)}
                          onClick={() => openDialog(<Set of={t} reload={list.reload} />)}
                        >
                          {S.set} …
                        </Button>
                      </div>
                    </td>
                  </tr>
                ))}
              </Table>
            ) : (
              <p class="empty">{S.nothingFound}</p>
            );
          }}
        </Shown>
        <CommandLine line="cenote tunable list -v" />
      </Card>
    </>
  );
}

function Set({ of, reload }: { of: Tunable; reload: () => void }) {
  const [value, setValue] = useState(String(of.value));
  const [back, setBack] = useState(false);
  const [save, setSave] = useState(false);
  return (
    <DeedDialog
      title={S.change(of.name)}
      verb={S.set}
      deed={deeds.setTunable(of.name, back ? null : value, save)}
      missing={back || value.trim() ? undefined : S.tunables.type}
      done={reload}
    >
      <p>{of.text}</p>
      <Facts
        of={[
          [S.tunables.default, shown(of, of.default)],
          [S.tunables.range, `${of.least} – ${of.most}`],
          [S.tunables.effect, S.tunables.effects[of.effect]],
        ]}
      />
      {back ? null : (
        <TextField
          label={S.value}
          value={value}
          set={setValue}
          focus
          hint={of.unit.startsWith("bytes") ? S.tunables.bytesHint : undefined}
        />
      )}
      <Check label={S.tunables.back} value={back} set={setBack} />
      <Check label={S.tunables.save} value={save} set={setSave} />
    </DeedDialog>
  );
}
