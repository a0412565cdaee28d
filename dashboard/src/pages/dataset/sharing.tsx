// How others get at a dataset.
import * as deeds from "../../deeds";
import { DeedButton, openDialog } from "../../parts/deed";
import { Button, Card, Facts } from "../../parts/ui";
import { to } from "../../route";
import { S } from "../../strings";
import { valueOf, type Entry } from "../datasets";
import { MendShares } from "../shares/ways";
import { SetProperty } from "./properties";

export function Sharing({ entry }: { entry: Entry }) {
  if (entry.kind === "volume") return <MendShares volume={entry.name} />;
  const share = valueOf(entry, "sharenfs");
  return (
    <Card title={S.dataset.nfs}>
      <p class="muted">{S.dataset.nfsText}</p>
      <Facts
        of={[
          ["sharenfs", share],
          [S.datasets.mountpoint, valueOf(entry, "mountpoint")],
        ]}
      />
      <div class="actions">
        <Button
          needs="property-set"
          onClick={() =>
            openDialog(
              <SetProperty dataset={entry.name} name="sharenfs" value={share === "off" ? "on" : share} />,
            )
          }
        >
          {S.change("sharenfs")} …
        </Button>
        {share !== "off" ? (
          <>
            <DeedButton
              label={S.dataset.share}
              text={S.dataset.shareText}
              deed={() => deeds.share(entry.name)}
            />
            <DeedButton
              label={S.dataset.unshare}
              text={S.dataset.unshareText}
              deed={() => deeds.unshare(entry.name)}
            />
          </>
        ) : null}
        <a class="button" href={to("shares")}>
          {S.nav.shares}
        </a>
      </div>
    </Card>
  );
}
