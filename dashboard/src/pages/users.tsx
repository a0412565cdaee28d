// Who may sign in to this page, and tokens for programs.
import type { Schemas } from "../api/client";
import { useState } from "preact/hooks";
import type { Role } from "../api/roles";
import * as deeds from "../deeds";
import { ago, when } from "../format";
import { DeedButton, DeedDialog, Modal, openDialog } from "../parts/deed";
import { Badge, Button, Card, Choice, CommandLine, Copy, Empty, Shown, Table, TextField } from "../parts/ui";
import { useQuery } from "../query";
import { session } from "../state";
import { S } from "../strings";

type DashboardRole = Schemas["DashboardRole"];
type DashboardUser = Schemas["DashboardUser"];

const ROLES = [
  ["viewer", S.roles.viewer],
  ["operator", S.roles.operator],
  ["admin", S.roles.admin],
] as const;

export function Users() {
  const users = useQuery("dashboard-users", {}, { every: 30_000 });
  const [token, setToken] = useState<string | null>(null);
  return (
    <>
      <div class="page-head">
        <h1>{S.nav.users}</h1>
        <div class="actions">
          <Button
            needs="dashboard-user-set"
            kind="main"
            onClick={() => openDialog(<SetUser reload={users.reload} />)}
          >
            {S.users.add}
          </Button>
          <Button
            needs="dashboard-token-create"
            onClick={() => openDialog(<Token reload={users.reload} show={setToken} />)}
          >
            {S.users.addToken}
          </Button>
        </div>
      </div>
      <Shown of={users} needs="dashboard-users">
        {(list) => {
          const tokens = list.flatMap((u) => (u.tokens ?? []).map((t) => ({ ...t, user: u.name })));
          return (
            <>
              <Card title={S.users.users}>
                <p class="muted">{S.users.text}</p>
                {list.length ? (
                  <Table
                    label={S.users.users}
                    head={
                      <>
                        <th scope="col">{S.signIn.user}</th>
                        <th scope="col">{S.users.role}</th>
                        <th scope="col" class="wide">
                          {S.users.sessions}
                        </th>
                        <th scope="col">
                          <span class="sr">{S.actions}</span>
                        </th>
                      </>
                    }
                  >
                    {list.map((u) => (
                      <tr key={u.name}>
                        <td>
                          <strong>{u.name}</strong>{" "}
                          {u.name === session.value?.user ? <Badge tone="info">{S.users.you}</Badge> : null}
                          {u.has_password === false ? <p class="hint">{S.users.ofMachine}</p> : null}
                        </td>
                        <td>{u.role}</td>
                        <td class="wide num-left">{u.sessions ?? "–"}</td>
                        <td>
                          {u.has_password === false ? null : (
                            <div class="actions end">
                              <Button
                                needs="dashboard-user-set"
                                onClick={() => openDialog(<SetUser user={u} reload={users.reload} />)}
                                label={S.users.changeOf(u.name)}
                              >
                                {S.hooks.change}
                              </Button>
                              <DeedButton
                                label={S.hooks.remove}
                                title={S.users.removeOf(u.name)}
                                text={S.users.removeText}
                                deed={() => deeds.removeUser(u.name)}
                                typed={u.name}
                                danger
                                kind=""
                                done={users.reload}
                              />
                            </div>
                          )}
                        </td>
                      </tr>
                    ))}
                  </Table>
                ) : (
                  <Empty>{S.users.none}</Empty>
                )}
              </Card>
              <Card title={S.users.tokens}>
                <p class="muted">{S.users.tokenText}</p>
                {tokens.length ? (
                  <Table
                    label={S.users.tokens}
                    head={
                      <>
                        <th scope="col">{S.name}</th>
                        <th scope="col">{S.users.role}</th>
                        <th scope="col" class="wide">
                          {S.signIn.user}
                        </th>
                        <th scope="col">{S.users.ends}</th>
                        <th scope="col" class="wide">
                          {S.users.lastUsed}
                        </th>
                        <th scope="col">
                          <span class="sr">{S.actions}</span>
                        </th>
                      </>
                    }
                  >
                    {tokens.map((t) => (
                      <tr key={t.name}>
                        <td>{t.name}</td>
                        <td>{t.role}</td>
                        <td class="wide">{t.user}</td>
                        <td>{t.ends ? when(t.ends) : S.users.never}</td>
                        <td class="wide">{t.last_used ? ago(t.last_used) : "–"}</td>
                        <td>
                          <div class="actions end">
                            <DeedButton
                              label={S.hooks.remove}
                              title={S.users.removeTokenOf(t.name)}
                              text={S.users.removeTokenText}
                              deed={() => deeds.removeToken(t.name)}
                              done={users.reload}
                            />
                          </div>
                        </td>
                      </tr>
                    ))}
                  </Table>
                ) : (
                  <Empty>{S.users.noTokens}</Empty>
                )}
                <CommandLine
                  line={`curl -H "authorization: Bearer $TOKEN" -d '{}' ${location.origin}/v1/pool-list`}
                  label={S.users.tokenUse}
                />
              </Card>
            </>
          );
        }}
      </Shown>
      {token ? (
        <Modal>
          <div class="deed">
            <h2 id="dialog-title">{S.users.tokenMade}</h2>
            <div class="deed-body">
              <p>{S.users.tokenOnce}</p>
              <div class="command">
                <code tabIndex={0}>{token}</code>
                <Copy text={token} />
              </div>
            </div>
            <footer>
              <Button kind="main" onClick={() => setToken(null)}>
                {S.users.haveIt}
              </Button>
            </footer>
          </div>
        </Modal>
      ) : null}
    </>
  );
}

function SetUser({ user, reload }: { user?: DashboardUser; reload: () => void }) {
  const [name, setName] = useState(user?.name ?? "");
  const [role, setRole] = useState<Role>(user && user.role !== "metrics" ? user.role : "viewer");
  const [password, setPassword] = useState("");
  const [again, setAgain] = useState("");
  const differ = password !== again ? S.users.differ : undefined;
  return (
    <DeedDialog
      title={user ? S.users.changeOf(user.name) : S.users.addTitle}
      verb={S.hooks.save}
      deed={deeds.setUser(name, role, password)}
      missing={!name ? S.datasets.nameIt : !user && !password ? S.users.needPassword : differ}
      done={reload}
    >
      {user ? (
        <p class="muted">{S.users.changeText}</p>
      ) : (
        <TextField label={S.signIn.user} value={name} set={setName} focus />
      )}
      <Choice label={S.users.role} value={role} set={setRole} options={ROLES} />
      <TextField
        label={user ? S.users.newPassword : S.signIn.password}
        type="password"
        autocomplete="new-password"
        value={password}
        set={setPassword}
        hint={user ? S.users.emptyKeeps : undefined}
      />
      <TextField
        label={S.users.repeat}
        type="password"
        autocomplete="new-password"
        value={again}
        set={setAgain}
        error={again ? differ : undefined}
      />
      <p class="hint">{S.users.asked}</p>
    </DeedDialog>
  );
}

function Token({ reload, show }: { reload: () => void; show: (token: string) => void }) {
  const [name, setName] = useState("");
  const [role, setRole] = useState<DashboardRole>("viewer");
  const [days, setDays] = useState("90");
  const n = days ? Number(days) : undefined;
  return (
    <DeedDialog
      title={S.users.addTokenTitle}
      verb={S.create.verb}
      deed={deeds.createToken(name, role, n)}
      missing={!name ? S.datasets.nameIt : n !== undefined && !(n > 0) ? S.users.badDays : undefined}
      done={(reply) => {
        reload();
        show((reply as { token: string }).token);
      }}
    >
      <TextField label={S.name} value={name} set={setName} focus placeholder="backup" />
      <Choice
        label={S.users.role}
        value={role}
        set={setRole}
        options={[...ROLES, ["metrics", S.users.metrics] as const]}
      />
      <TextField label={S.users.days} type="number" value={days} set={setDays} hint={S.users.daysHint} />
    </DeedDialog>
  );
}

/** Those who sign in with a password change it themselves. */
export function OwnPassword() {
  const [old, setOld] = useState("");
  const [fresh, setFresh] = useState("");
  const [again, setAgain] = useState("");
  const differ = fresh !== again ? S.users.differ : undefined;
  return (
    <DeedDialog
      title={S.users.ownTitle}
      verb={S.hooks.save}
      deed={deeds.setPassword(session.value?.user ?? "", old, fresh)}
      missing={!old || !fresh ? S.users.needPassword : differ}
      said={S.users.ownSaid}
    >
      <p class="muted">{S.users.ownText}</p>
      <TextField
        label={S.users.oldPassword}
        type="password"
        autocomplete="current-password"
        value={old}
        set={setOld}
        focus
      />
      <TextField
        label={S.users.newPassword}
        type="password"
        autocomplete="new-password"
        value={fresh}
        set={setFresh}
      />
      <TextField
        label={S.users.repeat}
        type="password"
        autocomplete="new-password"
        value={again}
        set={setAgain}
        error={again ? differ : undefined}
      />
      <p class="hint">{S.users.asked}</p>
    </DeedDialog>
  );
}
