// A report of the lab: the answer first, then what it rests on. The dashboard and the page of a report show the
// same.
import type { Block, Document, Rows } from "./document";
import { BarsPlot, CoursesPlot, DotsPlot, PercentilesPlot, Prose } from "./plots";
import "./report.css";
import { R } from "./strings";

/** `alone`: nothing else is on the page, so that its title is the page's. */
export function Report({ of, alone }: { of: Document; alone?: boolean }) {
  const [first, ...more] = of.answer?.sentences ?? [];
  return (
    <article class="report">
      {alone ? <h1>{of.title}</h1> : null}
      {of.question ? (
        <p class="r-question">
          <Prose text={of.question} />
        </p>
      ) : null}
      {(of.notes ?? []).map((note, i) => (
        <p class="r-note" key={i}>
          <Prose text={note} />
        </p>
      ))}
      {first ? (
        <div class={of.answer?.is_answered ? "r-answer" : "r-answer r-open"}>
          <p>
            <Prose text={first} />
          </p>
          {more.length ? <List items={more} /> : null}
        </div>
      ) : null}
      {(of.blocks ?? []).map((block, i) => (
        <Shown key={i} block={block} />
      ))}
      {of.facts?.length ? (
        <>
          <h2>{R.measured}</h2>
          <List items={of.facts} />
        </>
      ) : null}
    </article>
  );
}

function List({ items, ordered }: { items: string[]; ordered?: boolean }) {
  const Kind = ordered ? "ol" : "ul";
  return (
    <Kind class="r-list">
      {items.map((item, i) => (
        <li key={i}>
          <Prose text={item} />
        </li>
      ))}
    </Kind>
  );
}

function Shown({ block }: { block: Block }) {
  switch (block.kind) {
    case "heading": {
      const Head = block.level === 3 ? "h3" : "h2";
      return (
        <Head>
          <Prose text={block.text} />
          {block.small ? <small> ({block.small})</small> : null}
        </Head>
      );
    }
    case "prose":
      return (
        <p>
          {block.strong ? (
            <strong>
              <Prose text={block.text} />
            </strong>
          ) : (
            <Prose text={block.text} />
          )}
        </p>
      );
    case "list":
      return <List items={block.items} ordered={block.ordered ?? false} />;
    case "table":
      return <TableOf of={block} />;
    case "bars":
      return <BarsPlot of={block} />;
    case "percentiles":
      return <PercentilesPlot of={block} />;
    case "courses":
      return <CoursesPlot of={block} />;
    case "dots":
      return <DotsPlot of={block} />;
    default:
      return null;
  }
}

/** Twice as good or as bad is the strongest colour. */
function shade(good: number | undefined) {
  const strength = Math.min(1, Math.abs(good ?? 0) / Math.LN2) * 55;
  if (!(strength > 0.5)) return {};
  return {
    class: (good ?? 0) > 0 ? "r-good" : "r-bad",
    style: { "--r-strength": `${strength.toFixed(0)}%` } as Record<string, string>,
  };
}

function TableOf({ of }: { of: Rows }) {
  const [head, ...rows] = of.rows;
  if (!head) return null;
  return (
    <div class="r-table" tabIndex={0} role="group" aria-label={R.table}>
      <table>
        <thead>
          <tr>
            {head.map((cell, c) => (
              <th scope="col" key={c} class={c === 0 || of.words[c] ? "r-words" : undefined}>
                <Prose text={cell} />
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, r) => (
            <tr key={r}>
              {row.map((cell, c) => {
                if (c === 0)
                  return (
                    <th scope="row" class="r-words" key={c}>
                      <Prose text={cell} />
                    </th>
                  );
                const { class: tone, style } = shade(of.shades[r]?.[c - 1]);
                return (
                  <td
                    key={c}
                    class={[of.words[c] ? "r-words" : "", tone ?? ""].join(" ").trim()}
                    style={style}
                  >
                    <Prose text={cell} />
                  </td>
                );
              })}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
