// The key of an encrypted dataset.
import { useState } from "preact/hooks";
import * as deeds from "../../deeds";
import { base } from "../../format";
import { DeedButton, DeedDialog, openDialog } from "../../parts/deed";
import { Badge, Button, Card, Facts, TextField } from "../../parts/ui";
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
