// Volumes that are served, and by which protocols.
import { useState } from "preact/hooks";
import { size } from "../../format";
import { Badge, Card, Empty, Icon, Shown } from "../../parts/ui";
import { useQuery } from "../../query";
import { to } from "../../route";
import { S } from "../../strings";
import { shareNews, Ways } from "./ways";

export function Volumes() {
  const volumes = useQuery("volume-list", {}, { every: 20_000, on: shareNews });
  const shares = useQuery("share-list", {}, { every: 10_000, on: shareNews });
  const [open, setOpen] = useState<string | null>(null);
  return (
    <Shown of={volumes} needs="volume-list">
      {(list) => {
        const own = list.filter((v) => !v.name.includes("@"));
        const faults = (shares.data?.entries ?? []).filter(
          (s) => s.fault || s.through.some((t) => t.fault) || s.waiting?.length,
        );
        return (
          <>
            {faults.length ? (
              <Card title={S.overview.attention}>
                <ul class="rows">
                  {faults.map((f) => (
                    <li class="concern warn" key={f.name}>
                      <Icon name="warn" />
                      <div class="grow">
                        <a href={to("dataset", f.name, { tab: "share" })}>{f.name}</a>
                        <p>
                          {f.fault ??
                            f.through
                              .map((t) => t.fault)
                              .filter(Boolean)
                              .join(" ")}
                        </p>
                        {f.waiting?.map((w, i) => (
                          <p key={i} class="muted small">
                            {S.shares.waiting(
                              w.what ?? "",
                              w.client ?? "",
                              w.seconds ?? 0,
                              w.waits_for ?? "",
                            )}
                          </p>
                        ))}
                      </div>
                    </li>
                  ))}
                </ul>
              </Card>
            ) : null}
            <Card title={S.shares.volumes}>
              {own.length ? (
                <ul class="rows">
                  {own.map((v) => {
                    const through = shares.data?.entries.find((s) => s.name === v.name)?.through ?? [];
                    return (
                      <li key={v.name} class="high">
                        <Icon name="volume" />
                        <div class="grow stack">
                          <p class="split">
                            <a href={to("dataset", v.name, { tab: "share" })}>{v.name}</a>
                            <span class="muted num">
                              {S.shares.volumeOf(size(v.size_bytes), size(v.block_bytes))}
                            </span>
                          </p>
                          <p class="actions">
                            {v.unavailable ? <Badge tone="warn">{v.unavailable}</Badge> : null}
                            {through.map((t) => (
                              <Badge
                                key={t.protocol}
                                tone={t.fault || t.not_listening?.length ? "warn" : "good"}
                                title={t.uris.join("\n")}
                              >
                                {S.shares.protocols[t.protocol] ?? t.protocol}
                              </Badge>
                            ))}
                            {through.some((t) => t.initiators.length || t.addresses.length) ? (
                              <span class="muted small">
                                {S.shares.onlyFor(
                                  [
                                    ...new Set(through.flatMap((t) => [...t.initiators, ...t.addresses])),
                                  ].join(", "),
                                )}
                              </span>
                            ) : null}
                          </p>
                          {open === v.name ? <Ways v={v} /> : null}
                        </div>
                        <button
                          type="button"
                          class="button"
                          aria-expanded={open === v.name}
                          onClick={() => setOpen(open === v.name ? null : v.name)}
                        >
                          {open === v.name ? S.close : S.shares.connect}
                          <span class="sr"> {v.name}</span>
                        </button>
                      </li>
                    );
                  })}
                </ul>
              ) : (
                <Empty
                  actions={
                    <a class="button" href={to("datasets")}>
                      {S.nav.datasets}
                    </a>
                  }
                >
                  {S.shares.noVolumes}
                </Empty>
              )}
              <p class="hint">{S.shares.listenHint}</p>
            </Card>
          </>
        );
      }}
    </Shown>
  );
}
