// What several experiments found, beside each other.
import { CommandLine, Card, Empty, Shown } from "../../parts/ui";
import { commandLine } from "../../format";
import { useQuery } from "../../query";
import { Report } from "../../report/report";
import type { Document } from "../../report/document";
import { route, to } from "../../route";
import { S } from "../../strings";

const L = S.lab;

export function Compare() {
  const names = (route.value.query.get("names") ?? "").split(",").filter(Boolean);
  const compared = useQuery("lab-compare", { names }, { not: names.length < 2 });
  return (
    <Card title={L.tabs.compare}>
      <p class="muted">{L.compareText}</p>
      {names.length < 2 ? (
        <Empty
          actions={
            <a class="button" href={to("lab")}>
              {L.tabs.experiments}
            </a>
          }
        >
          {L.compareHow}
        </Empty>
      ) : (
        <>
          <Shown of={compared} needs="lab-compare">
            {(answer) => <Report of={answer.document as unknown as Document} />}
          </Shown>
          <CommandLine line={`cenote ${commandLine(["lab", "compare", ...names])}`} label={S.sameAs} />
        </>
      )}
    </Card>
  );
}
