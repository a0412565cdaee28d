// What is delegated to users of the machine: zfs allow.
import { useState } from "preact/hooks";
import type { ReplyOf } from "../../api/client";
import * as deeds from "../../deeds";
import type { Grantees, Scope } from "../../deeds";
import { commandLine } from "../../format";
import { DeedButton, DeedDialog, openDialog } from "../../parts/deed";
import {
  Badge,
  Button,
  Card,
  Check,
  Choice,
  CommandLine,
  Empty,
  Shown,
  Table,
  TextField,
} from "../../parts/ui";
import { useQuery } from "../../query";
import { to } from "../../route";
import { S } from "../../strings";

const P = S.people;
type Granted = ReplyOf<"delegation-list">[number]["grants"][number];

const whoIs = (grant: Granted): string => {
  const who = grant.to;
  if (who === "everyone") return P.everyone;
  if (who === "creator") return P.creators;
  if ("set" in who) return P.setNamed(who.set);
  if ("user" in who) return P.userOf(String(who.user[1] ?? who.user[0]));
  return P.groupOf(String(who.group[1] ?? who.group[0]));
};
const granteesOf = (grant: Granted): Grantees => {
  const who = grant.to;
  if (who === "everyone" || who === "creator") return who;
  if ("set" in who) return { set: who.set };
  if ("user" in who) return { users: [String(who.user[1] ?? who.user[0])] };
  return { groups: [String(who.group[1] ?? who.group[0])] };
};
const scopeOf = (grant: Granted): Scope | undefined =>
  grant.local && grant.descendent
    ? "both"
    : grant.local
      ? "local"
      : grant.descendent
        ? "descendent"
        : undefined;

export function Permissions({ name }: { name: string }) {
  const listed = useQuery("delegation-list", { dataset: name }, { every: 30_000 });
  return (
    <Card
      title={P.permissions}
      actions={
        <Button
          needs="delegation-allow"
          onClick={() => openDialog(<Grant name={name} reload={listed.reload} />)}
        >
          {P.grant}
        </Button>
      }
    >
      <p class="muted">{P.permissionsText}</p>
      <Shown of={listed}>
        {(list) => {
          const some = list.filter((g) => g.grants.length);
          return some.length ? (
            <>
              {some.map((from) => (
                <section key={from.dataset} class="stack">
                  <h3>
                    {from.dataset === name ? (
                      P.here
                    ) : (
                      <a href={to("dataset", from.dataset, { tab: "permissions" })}>
                        {P.above(from.dataset)}
                      </a>
                    )}
                  </h3>
                  <Table
                    label={from.dataset === name ? P.here : P.above(from.dataset)}
                    head={
                      <>
                        <th scope="col">{P.grantee}</th>
                        <th scope="col">{P.scope}</th>
                        <th scope="col">{P.what}</th>
                        <th scope="col">
                          <span class="sr">{S.actions}</span>
                        </th>
                      </>
                    }
                  >
                    {from.grants.map((g, i) => {
                      const scope = scopeOf(g);
                      return (
                        <tr key={i}>
                          <td>{whoIs(g)}</td>
                          <td class="muted">{scope ? P.scopes[scope] : "–"}</td>
                          <td class="value">
                            {g.permissions.map((p) => (
                              <span key={p}>
                                <Badge tone="plain">{p}</Badge>{" "}
                              </span>
                            ))}
                          </td>
                          <td>
                            {from.dataset === name ? (
                              <div class="actions end">
                                <DeedButton
                                  label={P.take}
                                  title={P.takeOf(whoIs(g))}
                                  text={P.takeText(g.permissions.length)}
                                  deed={() =>
                                    deeds.unallow(name, granteesOf(g), scope ?? "both", g.permissions)
                                  }
                                  done={listed.reload}
                                />
                              </div>
                            ) : null}
                          </td>
                        </tr>
                      );
                    })}
                  </Table>
                </section>
              ))}
            </>
          ) : (
            <Empty>{P.noGrants}</Empty>
          );
        }}
      </Shown>
      <CommandLine line={`cenote ${commandLine(["zfs", "allow", name])}`} label={S.sameAs} />
    </Card>
  );
}

const USUAL = [
  "snapshot",
  "mount",
  "create",
  "destroy",
  "send",
  "receive",
  "rollback",
  "hold",
  "quota",
  "compression",
];
type Kind = (typeof P.kinds)[number][0];

function Grant({ name, reload }: { name: string; reload: () => void }) {
  const [kind, setKind] = useState<Kind>("users");
  const [names, setNames] = useState("");
  const [scope, setScope] = useState<Scope>("both");
  const [picked, setPicked] = useState<readonly string[]>([]);
  const [others, setOthers] = useState("");
  const words = (text: string) => text.split(/[\s,]+/).filter(Boolean);
  const permissions = [...picked, ...words(others)];
  const list = words(names);
  const who: Grantees =
    kind === "users"
      ? { users: list }
      : kind === "groups"
        ? { groups: list }
        : kind === "set"
          ? { set: names.trim() }
          : kind;
  const named = kind === "users" || kind === "groups" || kind === "set";
  const missing =
    named && !list.length
      ? P.sayWho
      : kind === "set" && !names.trim().startsWith("@")
        ? P.badSet
        : permissions.length
          ? undefined
          : P.choose;
  return (
    <DeedDialog
      title={P.grantTitle(name)}
      verb={P.grantVerb}
      deed={deeds.allow(name, who, kind === "set" || kind === "creator" ? "both" : scope, permissions)}
      missing={missing}
      done={reload}
    >
      <div class="fields">
        <Choice label={P.kind} value={kind} set={setKind} options={P.kinds} />
        {named ? (
          <TextField
            label={P.names}
            value={names}
            set={setNames}
            hint={kind === "set" ? P.setHint : P.namesHint}
          />
        ) : null}
        {kind === "set" || kind === "creator" ? null : (
          <Choice
            label={P.scope}
            value={scope}
            set={setScope}
            options={(["both", "local", "descendent"] as const).map((s) => [s, P.scopes[s]] as const)}
          />
        )}
      </div>
      <fieldset>
        <legend>{P.usual}</legend>
        <div class="fields narrow">
          {USUAL.map((p) => (
            <Check
              key={p}
              label={p}
              value={picked.includes(p)}
              set={() => setPicked(picked.includes(p) ? picked.filter((x) => x !== p) : [...picked, p])}
            />
          ))}
        </div>
      </fieldset>
      <TextField label={P.others} value={others} set={setOthers} hint={P.othersHint} />
    </DeedDialog>
  );
}
