// The properties of a dataset, with their sources.
import { useState } from "preact/hooks";
import * as deeds from "../../deeds";
import { commandLine, when } from "../../format";
import { DeedDialog, openDialog } from "../../parts/deed";
import { Button, Card, Check, CommandLine, Table, TextField } from "../../parts/ui";
import { S } from "../../strings";
import { type Entry } from "../datasets";

export function Properties({ entry }: { entry: Entry }) {
  const [filter, setFilter] = useState("");
  const [local, setLocal] = useState(false);
  const rows = entry.properties.filter(
    (p) => p.name.includes(filter) && (!local || p.source === "local" || p.source === "received"),
  );
  return (
    <Card
      title={S.dataset.tabs.properties}
      actions={
        <Button
          needs="property-set"
          onClick={() => openDialog(<SetProperty dataset={entry.name} name="" value="" />)}
        >
          {S.dataset.setAnother}
        </Button>
      }
    >
      <div class="tools">
        <TextField label={S.search} value={filter} set={setFilter} />
        <Check label={S.dataset.onlyLocal} value={local} set={setLocal} />
      </div>
      {rows.length ? (
        <Table
          label={S.dataset.tabs.properties}
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
                {S.zfsProperty[p.name] ? <p class="hint">{S.zfsProperty[p.name]}</p> : null}
              </td>
              <td class="value">
                {p.name === "creation" ? when(p.parsable) : (p.value ?? "–")}
                {p.received && p.source !== "received" ? (
                  <p class="hint">{S.dataset.received(p.received)}</p>
                ) : null}
              </td>
              <td class="wide muted">{S.sourceOf(p.source)}</td>
              <td>
                {p.source === "none" && !SETTABLE.has(p.name) ? null : (
                  <div class="actions end">
                    <Button
                      needs="property-set"
                      kind="quiet"
                      label={S.change(p.name)}
                      onClick={() =>
                        openDialog(<SetProperty dataset={entry.name} name={p.name} value={p.value ?? ""} />)
                      }
                    >
                      {S.set} …
                    </Button>
                    {p.source === "local" || p.source === "received" ? (
                      <Button
                        needs="property-inherit"
                        kind="quiet"
                        label={S.dataset.inheritOf(p.name)}
                        onClick={() =>
                          openDialog(
                            <Inherit dataset={entry.name} name={p.name} received={Boolean(p.received)} />,
                          )
                        }
                      >
                        {S.dataset.inherit}
                      </Button>
                    ) : null}
                  </div>
                )}
              </td>
            </tr>
          ))}
        </Table>
      ) : (
        <p class="empty">{S.nothingFound}</p>
      )}
      <CommandLine line={`cenote ${commandLine(["zfs", "get", "all", entry.name])}`} />
    </Card>
  );
}
const SETTABLE = new Set(["volsize"]);

export function SetProperty({ dataset, name, value }: { dataset: string; name: string; value: string }) {
  const [property, setProperty] = useState(name);
  const [next, setNext] = useState(value === "–" || value === "-" ? "" : value);
  const choices = S.values[property];
  return (
    <DeedDialog
      title={name ? S.change(name) : S.dataset.setAnother}
      verb={S.set}
      deed={deeds.setProperty(dataset, property || "PROPERTY", next)}
      missing={property && next ? undefined : S.dataset.nameAndValue}
    >
      {name ? (
        S.zfsProperty[name] ? (
          <p>{S.zfsProperty[name]}</p>
        ) : null
      ) : (
        <TextField
          label={S.name}
          value={property}
          set={setProperty}
          focus
          list={Object.keys(S.zfsProperty)}
          hint={S.dataset.userProperty}
        />
      )}
      <TextField
        label={S.value}
        value={next}
        set={setNext}
        focus={Boolean(name)}
        {...(choices ? { list: choices, hint: S.dataset.choices(choices.join(", ")) } : {})}
      />
      {S.newOnly.includes(property) ? <p class="hint">{S.dataset.newOnly}</p> : null}
    </DeedDialog>
  );
}
function Inherit({ dataset, name, received }: { dataset: string; name: string; received: boolean }) {
  const [recursive, setRecursive] = useState(false);
  const [back, setBack] = useState(false);
  return (
    <DeedDialog
      title={S.dataset.inheritOf(name)}
      verb={S.dataset.inherit}
      deed={deeds.inherit(dataset, name, { recursive, received: back })}
    >
      <p>{S.dataset.inheritText}</p>
      <Check label={S.dataset.recursiveBelow} value={recursive} set={setRecursive} />
      {received ? <Check label={S.dataset.backToReceived} value={back} set={setBack} /> : null}
    </DeedDialog>
  );
}
