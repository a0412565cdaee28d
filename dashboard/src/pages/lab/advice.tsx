// What to change about open pools, by what their counters say.
import { Card, CommandLine, Empty, Facts, Shown } from "../../parts/ui";
import { useQuery } from "../../query";
import { to } from "../../route";
import { S } from "../../strings";

const L = S.lab;

export function Advice() {
  const advice = useQuery("lab-advise", { pools: [] });
  return (
    <>
      <p class="muted">{L.adviceText}</p>
      <Shown of={advice} needs="lab-advise">
        {(list) =>
          list.length ? (
            <>
              {list.map((a) => (
                <Card key={`${a.pool} ${a.title}`} title={a.title}>
                  <Facts
                    of={[
                      [S.nav.pool, <a href={to("pool", a.pool)}>{a.pool}</a>],
                      [L.evidence, a.evidence],
                      a.gain ? [L.gain, a.gain] : false,
                      a.cost ? [L.cost, a.cost] : false,
                      a.risk ? [L.risk, a.risk] : false,
                    ]}
                  />
                  {a.command ? <CommandLine line={a.command} label={L.does} /> : null}
                  {a.prove ? <CommandLine line={a.prove} label={L.proves} /> : null}
                </Card>
              ))}
            </>
          ) : (
            <Card>
              <Empty>{L.noAdvice}</Empty>
            </Card>
          )
        }
      </Shown>
      <CommandLine line="cenote lab advise" label={S.sameAs} />
    </>
  );
}
