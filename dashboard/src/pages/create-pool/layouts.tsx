// Layouts for some disks side by side: what fits, what survives, how fast they are. The figures are those of the
// lab's models; where disks have no size, only what follows from the number of disks is shown.
import { useState } from "preact/hooks";
import type { ReplyOf } from "../../api/client";
import { devicesOf, readLayout } from "../../deeds";
import { count, duration, percent, rate, size } from "../../format";
import { Button, Facts, Table, TextField } from "../../parts/ui";
import { useQuery } from "../../query";
import { S } from "../../strings";

const T = S.create;
type Modelled = ReplyOf<"lab-layouts">[number];
export interface Choice {
  layout: string;
  /** Any so many disks may fail. */
  survives: number;
  modelled?: Modelled;
}

/** A layout in plain words. */
export function described(layout: string): string {
  const vdevs = readLayout(layout);
  const first = vdevs?.[0];
  if (!vdevs || !first) return layout;
  const same = vdevs.every((v) => v.word === first.word && v.devices === first.devices);
  if (!same) return T.kinds.mixed;
  if (first.layout === "single") return T.kinds.single(vdevs.length);
  if (first.layout === "mirror") return T.kinds.mirror(vdevs.length, first.devices);
  if (typeof first.layout === "object" && "raidz" in first.layout)
    return T.kinds.raidz(first.layout.raidz.nparity, vdevs.length, first.devices);
  const draid = (first.layout as { draid: { nparity: number; ndata: number; nspares: number } }).draid;
  return T.kinds.draid(draid.nparity, draid.ndata, first.devices, draid.nspares);
}

/** Any so many devices of a layout may fail. */
function survivesOf(layout: string): number {
  const each = (readLayout(layout) ?? []).map((v) =>
    v.layout === "single"
      ? 0
      : v.layout === "mirror"
        ? v.devices - 1
        : "raidz" in v.layout
          ? v.layout.raidz.nparity
          : v.layout.draid.nparity,
  );
  return each.length ? Math.min(...each) : 0;
}
export const survivesText = (n: number) => (n ? T.survives(n) : T.survivesNone);

/** What can be said without a model. */
function plain(n: number): Choice[] {
  if (!n) return [];
  const list = [String(n)];
  if (n >= 2) list.push(`mirror ${n}`);
  if (n >= 4 && n % 2 === 0)
    list.push(
      Array<string>(n / 2)
        .fill("mirror 2")
        .join(" + "),
    );
  for (const p of [1, 2, 3]) if (n >= p + 2) list.push(`raidz${p} ${n}`);
  return list.map((layout) => ({ layout, survives: survivesOf(layout) }));
}

/** The layouts for so many disks, those that survive most first. */
export function useLayouts(disks: number, bytes: number, rotational: boolean) {
  const asked = useQuery(
    "lab-layouts",
    { disks, disk_bytes: bytes, rotational, spares: 0 },
    { not: !disks || !bytes },
  );
  const own = plain(disks);
  if (!asked.data?.length || !disks || !bytes) return { list: own, modelled: false };
  const list: Choice[] = asked.data.map((m) => ({ layout: m.layout, survives: m.survives, modelled: m }));
  // A mirror of all disks is what few disks are mostly for.
  for (const more of own) if (!list.some((c) => c.layout === more.layout)) list.push(more);
  return { list, modelled: true };
}

/** What most would choose for so many disks. */
export function usual(list: Choice[], n: number): string {
  const has = (layout: string) => (list.some((c) => c.layout === layout) ? layout : undefined);
  const two = has(`raidz2 ${n}`);
  return (
    (n <= 3 ? has(n === 1 ? "1" : `mirror ${n}`) : undefined) ??
    (n >= 6 ? two : undefined) ??
    has(
      Array<string>(Math.floor(n / 2))
        .fill("mirror 2")
        .join(" + "),
    ) ??
    has(`raidz1 ${n}`) ??
    list.find((c) => c.survives >= 2)?.layout ??
    list[0]?.layout ??
    ""
  );
}

const SHOWN = 7;

export function Layouts({
  list,
  modelled,
  chosen,
  set,
  disks,
}: {
  list: Choice[];
  modelled: boolean;
  chosen: string;
  set: (layout: string) => void;
  disks: number;
}) {
  const [all, setAll] = useState(false);
  const [own, setOwn] = useState("");
  const rows = all ? list : list.slice(0, SHOWN);
  const mine = list.find((c) => c.layout === chosen);
  if (mine && !rows.includes(mine)) rows.push(mine);
  return (
    <>
      <Table
        label={T.step2}
        head={
          <>
            <th scope="col">{T.layout}</th>
            {modelled ? (
              <th scope="col" class="num">
                {T.usable}
              </th>
            ) : null}
            <th scope="col">{T.mayFail}</th>
            {modelled ? (
              <>
                <th scope="col" class="num wide">
                  {T.reads}
                </th>
                <th scope="col" class="num wide">
                  {T.writes}
                </th>
                <th scope="col" class="num wide2">
                  {T.rebuild}
                </th>
                <th scope="col" class="num wide2">
                  {T.loss}
                </th>
              </>
            ) : null}
          </>
        }
      >
        {rows.map((c) => {
          const m = c.modelled;
          return (
            <tr key={c.layout} class={c.layout === chosen ? "chosen" : ""}>
              <td>
                <label class="check">
                  <input
                    type="radio"
                    name="layout"
                    checked={chosen === c.layout}
                    onChange={() => set(c.layout)}
                  />
                  <span>
                    <strong>{described(c.layout)}</strong>
                    <span class="hint block">
                      <code>{c.layout}</code>
                    </span>
                  </span>
                </label>
              </td>
              {modelled ? <td class="num">{m ? size(Math.round(m.usable_bytes)) : "–"}</td> : null}
              <td>{survivesText(c.survives)}</td>
              {modelled ? (
                <>
                  <td class="num wide">
                    {m ? (
                      <>
                        {T.perSecond(count(m.read_iops))}
                        <br />
                        <span class="muted">{rate(m.read_bytes_per_second)}</span>
                      </>
                    ) : (
                      "–"
                    )}
                  </td>
                  <td class="num wide">
                    {m ? (
                      <>
                        {T.perSecond(count(m.write_iops))}
                        <br />
                        <span class="muted">{rate(m.write_bytes_per_second)}</span>
                      </>
                    ) : (
                      "–"
                    )}
                  </td>
                  <td class="num wide2">{rebuild(m)}</td>
                  <td class="num wide2">{chance(m?.chance_of_loss_per_year)}</td>
                </>
              ) : null}
            </tr>
          );
        })}
      </Table>
      {list.length > SHOWN ? (
        <p class="actions">
          <Button kind="quiet" onClick={() => setAll(!all)}>
            {all ? T.fewer : T.allLayouts(list.length)}
          </Button>
        </p>
      ) : null}
      <div class="filter">
        <TextField
          label={T.another}
          value={own}
          set={(text) => {
            setOwn(text);
            if (devicesOf(text.trim()) === disks) set(text.trim());
          }}
          hint={T.anotherHint}
          error={own && devicesOf(own.trim()) !== disks ? T.anotherBad(disks) : undefined}
        />
      </div>
      {mine?.modelled ? <Chosen of={mine.modelled} /> : null}
      <p class="hint">{modelled ? T.modelled : T.rough}</p>
    </>
  );
}

export const choiceOf = (list: Choice[], layout: string): Choice | undefined =>
  list.find((c) => c.layout === layout) ??
  (readLayout(layout) ? { layout, survives: survivesOf(layout) } : undefined);

/** At best, and at worst where that is much longer. */
function rebuild(of: Modelled | undefined): string {
  const { rebuild_seconds: best, rebuild_seconds_at_worst: worst } = of ?? {};
  if (typeof best !== "number") return "–";
  return typeof worst === "number" && worst > best * 1.5
    ? T.between(duration(best), duration(worst))
    : duration(best);
}

const ROUGHLY = new Intl.NumberFormat("en-GB", {
  notation: "compact",
  compactDisplay: "long",
  maximumSignificantDigits: 2,
});
function chance(part: number | null | undefined): string {
  if (typeof part !== "number") return "–";
  if (part <= 0) return "0";
  return part >= 1e-3 ? percent(part, part >= 0.01 ? 1 : 2) : T.oneIn(ROUGHLY.format(1 / part));
}

function Chosen({ of }: { of: Modelled }) {
  return (
    <section aria-label={T.chosenText}>
      <Facts
        of={[
          [T.usable, size(Math.round(of.usable_bytes))],
          [T.mayFail, survivesText(of.survives)],
          [
            `${T.random}: ${T.reads}, ${T.writes}`,
            `${T.perSecond(count(of.read_iops))}, ${T.perSecond(count(of.write_iops))}`,
          ],
          [
            `${T.inOrder}: ${T.reads}, ${T.writes}`,
            `${rate(of.read_bytes_per_second)}, ${rate(of.write_bytes_per_second)}`,
          ],
          [T.rebuild, rebuild(of)],
          [T.loss, chance(of.chance_of_loss_per_year)],
        ]}
      />
      {of.remarks.length ? (
        <ul class="bullets small">
          {of.remarks.map((r) => (
            <li key={r}>{r}</li>
          ))}
        </ul>
      ) : null}
    </section>
  );
}
