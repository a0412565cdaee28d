// Where the page is: the part of the address behind `#`.
import { signal } from "@preact/signals";

export interface Route {
  page: string;
  /** What follows the page, decoded: a pool, or a dataset with its slashes. */
  name: string;
  query: URLSearchParams;
}

function read(): Route {
  const [path = "", query = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  const cut = path.indexOf("/");
  const name = cut < 0 ? "" : path.slice(cut + 1);
  return {
    page: cut < 0 ? path : path.slice(0, cut),
    name: name.split("/").map(decode).join("/"),
    query: new URLSearchParams(query),
  };
}
function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export const route = signal<Route>(read());
/** Looks at the address again, after it was replaced. */
export function look() {
  route.value = read();
}
addEventListener("hashchange", () => {
  // A link to sign in is taken out of the address again, by the page for that.
  if (location.hash.startsWith("#sign-in=")) return;
  route.value = read();
});

export function to(page: string, name = "", query: Record<string, string> = {}): string {
  const path = name
    ? `/${name
        .split("/")
        .map((p) => encodeURIComponent(p).replace(/%40/g, "@"))
        .join("/")}`
    : "";
  const search = new URLSearchParams(query).toString();
  return `#/${page}${path}${search ? `?${search}` : ""}`;
}
export function go(page: string, name = "", query: Record<string, string> = {}) {
  location.hash = to(page, name, query);
}
