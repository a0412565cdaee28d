// The key of an encrypted dataset.
import { useState } from "preact/hooks";
import * as deeds from "../../deeds";
import { base } from "../../format";
import { DeedButton, DeedDialog, openDialog } from "../../parts/deed";
import { Badge, Button, Card, Choice, Facts, TextField } from "../../parts/ui";
import { to } from "../../route";
import { S } from "../../strings";
import { valueOf, type Entry } from "../datasets";

export function Encryption({ entry }: { entry: Entry }) {
  const root = valueOf(entry, "encryptionroot");
  const available = valueOf(entry, "keystatus") === "available";
  return (
    <Card title={S.dataset.tabs.encryption}>
      <Facts
        of={[
          [S.dataset.cipher, valueOf(entry, "encryption")],
          [
            S.dataset.keyOf,
            root === entry.name ? (
              S.dataset.ownKey
            ) : (
              <a href={to("dataset", root, { tab: "encryption" })}>{root}</a>
            ),
          ],
          [S.dataset.keyFormat, valueOf(entry, "keyformat")],
          [S.dataset.keyLocation, valueOf(entry, "keylocation")],
          [
            S.dataset.key,
            <Badge tone={available ? "good" : "warn"}>
              {available ? S.dataset.loaded : S.dataset.notLoaded}
            </Badge>,
          ],
        ]}
      />
      <div class="actions">
        <Button
          needs="key-change"
          off={available ? undefined : S.dataset.keyLoadFirst}
          onClick={() => openDialog(<ChangeKey name={entry.name} />)}
        >
          {S.dataset.changeKey}
        </Button>
        {available ? (
          <DeedButton
            label={S.dataset.unload}
            text={S.dataset.unloadText}
            deed={() => deeds.unloadKey(root)}
            typed={base(root)}
            danger
            kind=""
          />
        ) : (
          <Button
            needs="key-load"
            kind="main"
            onClick={() =>
              openDialog(<LoadKey name={root} prompt={valueOf(entry, "keylocation") === "prompt"} />)
            }
          >
            {S.concern.loadKey}
          </Button>
        )}
      </div>
    </Card>
  );
}
function LoadKey({ name, prompt }: { name: string; prompt: boolean }) {
  const [passphrase, setPassphrase] = useState("");
  return (
    <DeedDialog
      title={S.dataset.loadTitle(name)}
      verb={S.dataset.load}
      deed={deeds.loadKey(name, passphrase)}
      missing={prompt && !passphrase ? S.dataset.typeKey : undefined}
    >
      <p>{S.dataset.loadText}</p>
      <TextField
        label={S.dataset.keyField}
        type="password"
        value={passphrase}
        set={setPassphrase}
        focus
        autocomplete="current-password"
        hint={prompt ? undefined : S.dataset.keyFromLocation}
      />
    </DeedDialog>
  );
}

function ChangeKey({ name }: { name: string }) {
  const [way, setWay] = useState<"passphrase" | "file" | "inherit">("passphrase");
  const [passphrase, setPassphrase] = useState("");
  const [again, setAgain] = useState("");
  const [form, setForm] = useState<"hex" | "raw" | "passphrase">("hex");
  const [where, setWhere] = useState("");
  const differ = passphrase !== again ? S.users.differ : undefined;
  const wrong = where && !/^(file:\/\/\/|https?:\/\/)/.test(where) ? S.dataset.keyWhereBad : undefined;
  const root = !name.includes("/");
  const missing =
    way === "inherit"
      ? root
        ? S.dataset.inheritNo
        : undefined
      : way === "file"
        ? (wrong ?? (where ? undefined : S.dataset.keyWhereBad))
        : passphrase.length < 8
          ? S.create.shortPassphrase
          : differ;
  return (
    <DeedDialog
      title={S.dataset.changeKeyTitle(name)}
      verb={S.dataset.changeKeyVerb}
      deed={deeds.changeKey(name, {
        inherit: way === "inherit",
        properties:
          way === "passphrase"
            ? [
                ["keyformat", "passphrase"],
                ["keylocation", "prompt"],
              ]
            : [
                ["keyformat", form],
                ["keylocation", where || "file:///PATH"],
              ],
        ...(way === "passphrase" ? { passphrase } : {}),
      })}
      missing={missing}
    >
      <p>{S.dataset.changeKeyText}</p>
      <Choice label={S.dataset.newKey} value={way} set={setWay} options={S.dataset.newKeyWays} />
      {way === "passphrase" ? (
        <>
          <TextField
            label={S.create.passphrase}
            type="password"
            autocomplete="new-password"
            value={passphrase}
            set={setPassphrase}
          />
          <TextField
            label={S.dataset.keyAgain}
            type="password"
            autocomplete="new-password"
            value={again}
            set={setAgain}
            error={again ? differ : undefined}
          />
        </>
      ) : null}
      {way === "file" ? (
        <div class="fields">
          <Choice label={S.dataset.keyForm} value={form} set={setForm} options={S.dataset.keyForms} />
          <TextField
            label={S.dataset.keyWhere}
            value={where}
            set={setWhere}
            hint={S.dataset.keyWhereHint}
            error={wrong}
          />
        </div>
      ) : null}
    </DeedDialog>
  );
}
