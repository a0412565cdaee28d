// The lab has no action of the daemon yet: the page says so, and which commands do it.
import { Card, CommandLine } from "../parts/ui";
import { S } from "../strings";

export function Lab() {
  return (
    <>
      <h1>{S.nav.lab}</h1>
      <Card>
        <p>{S.lab.text}</p>
        <p class="muted">{S.lab.notHere}</p>
      </Card>
      <Card title={S.lab.commands}>
        <div class="stack">
          {S.lab.lines.map(([what, line]) => (
            <CommandLine key={line} label={what} line={line} />
          ))}
        </div>
      </Card>
    </>
  );
}
