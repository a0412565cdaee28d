// Who asked for which change.
import { useMemo, useState } from "preact/hooks";
import { when } from "../format";
import { Badge, Card, Cell, Check, CommandLine, Empty, Shown, TextField, Virtual } from "../parts/ui";
import { useQuery } from "../query";
import { S } from "../strings";

export function Audit() {
  const [filter, setFilter] = useState("");
  const [failed, setFailed] = useState(false);
  const log = useQuery("audit", { count: 2000 }, { every: 10_000 });
  const rows = useMemo(() => {
    const wanted = filter.toLowerCase();
    return (log.data ?? [])
      .map((e, i) => ({ ...e, key: i }))
      .filter((e) => !failed || (e.result && e.result !== "ok"))
      .filter(
        (e) => !wanted || `${e.user} ${e.action} ${e.object} ${e.result}`.toLowerCase().includes(wanted),
      )
      .sort((a, b) => (b.time ?? 0) - (a.time ?? 0) || b.key - a.key);
  }, [log.data, filter, failed]);
  return (
    <>
      <h1>{S.nav.audit}</h1>
      <Card>
        <div class="tools">
          <TextField label={S.search} value={filter} set={setFilter} />
          <Check label={S.audit.failed} value={failed} set={setFailed} />
        </div>
        <Shown of={log} needs="audit">
          {() =>
            rows.length ? (
              <Virtual
                rows={rows}
                kind="cols-audit"
                label={S.nav.audit}
                keyOf={(e) => String(e.key)}
                head={
                  <>
                    <Cell head>{S.audit.when}</Cell>
                    <Cell head kind="wide">
                      {S.audit.who}
                    </Cell>
                    <Cell head>{S.audit.what}</Cell>
                    <Cell head kind="wide">
                      {S.audit.result}
                    </Cell>
                  </>
                }
                row={(e) => (
                  <>
                    <Cell kind="muted num-left">{when(e.time)}</Cell>
                    <Cell kind="wide" title={`uid ${e.uid ?? ""} pid ${e.pid ?? ""}`}>
                      {e.user ?? e.uid} {e.role ? <span class="muted small">{e.role}</span> : null}
                    </Cell>
                    <Cell title={`${e.action} ${e.object ?? ""}`}>
                      <code>{e.action}</code> {e.object ?? ""}
                      {e.and_more ? ` ${S.audit.more(e.and_more)}` : ""}
                    </Cell>
                    <Cell kind="wide" title={e.result ?? ""}>
                      {e.result === "ok" ? (
                        <Badge tone="good">ok</Badge>
                      ) : (
                        <span class="bad-text">{e.result}</span>
                      )}
                    </Cell>
                  </>
                )}
              />
            ) : (
              <Empty>{log.data?.length ? S.nothingFound : S.audit.none}</Empty>
            )
          }
        </Shown>
        <CommandLine line="cenote audit" />
      </Card>
    </>
  );
}
