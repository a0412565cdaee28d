// The page of a report: the lab puts the document into it.
import { render } from "preact";
import type { Document } from "./document";
import "./page.css";
import { Report } from "./report";
import { R } from "./strings";

function read(): Document | null {
  try {
    return JSON.parse(document.getElementById("document")?.textContent ?? "null") as Document | null;
  } catch {
    return null;
  }
}

const found = read();
render(
  found ? <Report of={found} alone /> : <p>{R.noReport}</p>,
  document.getElementById("report") as HTMLElement,
);
