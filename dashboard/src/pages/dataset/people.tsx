// What users, groups and projects use of a filesystem, and their quotas.
import { useState } from "preact/hooks";
import type { Schemas } from "../../api/client";
import * as deeds from "../../deeds";
import { commandLine, count, readSize, size } from "../../format";
import { DeedDialog, openDialog } from "../../parts/deed";
import { Button, Card, Choice, CommandLine, Empty, Shown, Table, TextField } from "../../parts/ui";
import { useQuery } from "../../query";
import { S } from "../../strings";

const P = S.people;
type Owner = Schemas["Owner"];

export function People({ name }: { name: string }) {
  const [owner, setOwner] = useState<Owner>("user");
  const listed = useQuery("userspace", { dataset: name, owner }, { every: 30_000 });
  const dialog = (who: string) => openDialog(<SetQuota dataset={name} owner={owner} who={who} />);
  return (
    <Card
      title={P.title}
      actions={
        <Button needs="property-set" onClick={() => dialog("")}>
          {P.set}
        </Button>
      }
    >
      <p class="muted">{P.text}</p>
      <div class="tools">
        <Choice label={P.owner} value={owner} set={setOwner} options={P.owners} />
      </div>
      <Shown of={listed} needs="userspace">
        {(list) =>
          list.length ? (
            <Table
              label={P.title}
              head={
                <>
                  <th scope="col">{P.who[owner]}</th>
                  <th scope="col" class="num">
                    {P.used}
                  </th>
                  <th scope="col" class="num">
                    {P.quota}
                  </th>
                  <th scope="col" class="num wide">
                    {P.files}
                  </th>
                  <th scope="col" class="num wide">
                    {P.fileQuota}
                  </th>
                  <th scope="col">
                    <span class="sr">{S.actions}</span>
                  </th>
                </>
              }
            >
              {list.map((u) => {
                const who = u.name ?? String(u.id);
                const over = u.quota > 0 && u.used >= u.quota;
                return (
                  <tr key={u.id}>
                    <td>{who}</td>
                    <td class={over ? "num bad-text" : "num"}>{size(u.used)}</td>
                    <td class="num">{u.quota ? size(u.quota) : P.unlimited}</td>
                    <td class="num wide">{typeof u.objects === "number" ? count(u.objects) : "–"}</td>
                    <td class="num wide">{u.object_quota ? count(u.object_quota) : P.unlimited}</td>
                    <td>
                      <div class="actions end">
                        <Button
                          needs="property-set"
                          kind="quiet"
                          label={P.setOf(who)}
                          onClick={() => dialog(who)}
                        >
                          {S.set} …
                        </Button>
                      </div>
                    </td>
                  </tr>
                );
              })}
            </Table>
          ) : (
            <Empty>{P.none}</Empty>
          )
        }
      </Shown>
      <CommandLine line={`cenote ${commandLine(["zfs", `${owner}space`, name])}`} label={S.sameAs} />
    </Card>
  );
}

function SetQuota({ dataset, owner, who }: { dataset: string; owner: Owner; who: string }) {
  const [name, setName] = useState(who);
  const [bytes, setBytes] = useState("");
  const [files, setFiles] = useState("");
  const wrongBytes = bytes && bytes !== "none" && readSize(bytes) === undefined ? P.badSize : undefined;
  const wrongFiles = files && files !== "none" && !/^\d+$/.test(files) ? P.badCount : undefined;
  const target = name || "NAME";
  const properties: [string, string][] = [
    ...(bytes || !files ? [[`${owner}quota@${target}`, bytes || "SIZE"] as [string, string]] : []),
    ...(files ? [[`${owner}objquota@${target}`, files] as [string, string]] : []),
  ];
  return (
    <DeedDialog
      title={who ? P.setOf(who) : P.setTitle}
      verb={S.set}
      deed={deeds.setProperties(dataset, properties)}
      missing={wrongBytes ?? wrongFiles ?? (name && (bytes || files) ? undefined : P.say)}
    >
      {who ? null : <TextField label={P.who[owner]} value={name} set={setName} hint={P.whoHint} focus />}
      <TextField
        label={P.bytes}
        value={bytes}
        set={setBytes}
        hint={P.bytesHint}
        error={wrongBytes}
        focus={Boolean(who)}
      />
      <TextField label={P.count} value={files} set={setFiles} hint={P.countHint} error={wrongFiles} />
    </DeedDialog>
  );
}
