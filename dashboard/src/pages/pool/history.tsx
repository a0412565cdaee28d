// What was done to a pool, and the files that are damaged.
import { useState } from "preact/hooks";
import { commandLine, when } from "../../format";
import { type Status } from "../../health";
import { Card, Cell, Check, CommandLine, Icon, Shown, TextField, Virtual } from "../../parts/ui";
import { useQuery } from "../../query";
import { S } from "../../strings";

export function Damaged({ status }: { status: Status }) {
  if (!status.error_count)
    return (
      <Card>
        <p class="empty good">
          <Icon name="good" /> {S.pool.noErrors}
        </p>
      </Card>
    );
  return (
    <Card title={S.pool.damagedTitle(status.error_count)}>
      <p class="muted">{S.pool.damagedText}</p>
      <Virtual
        rows={status.error_files}
        label={S.pool.tabs.damaged}
        kind="cols-one"
        keyOf={(f) => f}
        row={(file) => (
          <Cell title={file}>
            <code>{file}</code>
          </Cell>
        )}
      />
      <CommandLine line={`cenote ${commandLine(["zpool", "status", "-v", status.name])}`} />
    </Card>
  );
}

export function History({ pool }: { pool: string }) {
  const [internal, setInternal] = useState(false);
  const history = useQuery("pool-history", { pools: [pool], internal }, { every: 15_000 });
  const [filter, setFilter] = useState("");
  return (
    <Card title={S.pool.tabs.history}>
      <div class="fields">
        <TextField label={S.search} value={filter} set={setFilter} />
        <Check label={S.pool.internal} value={internal} set={setInternal} />
      </div>
      <Shown of={history} needs="pool-history">
        {(answer) => {
          const rows = (answer.entries[0]?.records ?? []).filter((r) => r.text.includes(filter)).reverse();
          return rows.length ? (
            <Virtual
              rows={rows.map((r, i) => ({ ...r, key: rows.length - i }))}
              label={S.pool.tabs.history}
              kind="cols-history"
              keyOf={(r) => String(r.key)}
              row={(r) => (
                <>
                  <Cell kind="muted num-left">{when(r.time)}</Cell>
                  <Cell title={r.text.trim()}>
                    <code>{r.text.trim()}</code>
                  </Cell>
                </>
              )}
            />
          ) : (
            <p class="empty">{S.nothingFound}</p>
          );
        }}
      </Shown>
      <CommandLine line={`cenote ${commandLine(["zpool", "history", ...(internal ? ["-i"] : []), pool])}`} />
    </Card>
  );
}
