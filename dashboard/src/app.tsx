// The frame: navigation, who is signed in, the connection, and the page that the address names.
import { useEffect, useRef, useState } from "preact/hooks";
import { signOut } from "./api/client";
import { Dialogs, Modal, Notes, openDialog } from "./parts/deed";
import { Badge, Button, Icon } from "./parts/ui";
import { Overview, statusNews } from "./pages/overview";
import { link, SignIn } from "./pages/sign-in";
import { OwnPassword } from "./pages/users";
import { PAGES } from "./pages";
import { useQuery } from "./query";
import { route, to } from "./route";
import { begin, connection, expired, pools, session, setSession, whoIsIt } from "./state";
import { S } from "./strings";
import { setTheme, theme, type Theme } from "./theme";

const NAV = [
  ["overview", "overview"],
  ["datasets", "dataset"],
  ["shares", "share"],
  ["performance", "speed"],
  ["events", "bell"],
  ["hooks", "bell"],
  ["audit", "log"],
  ["tunables", "gear"],
  ["users", "users"],
  ["lab", "lab"],
] as const;

function Connection() {
  const now = connection.value;
  const [, tick] = useState(0);
  useEffect(() => {
    if (now.at !== "lost") return undefined;
    const timer = setInterval(() => tick((n) => n + 1), 1000);
    return () => clearInterval(timer);
  }, [now.at]);
  if (now.at === "live") return <Badge tone="good">{S.connection.live}</Badge>;
  if (now.at === "connecting") return <Badge tone="plain">{S.connection.connecting}</Badge>;
  return <Badge tone="bad">{S.connection.lost}</Badge>;
}

function ThemeSwitch() {
  const next: Record<Theme, Theme> = { auto: "light", light: "dark", dark: "auto" };
  return (
    <button type="button" class="button quiet" onClick={() => setTheme(next[theme.value])}>
      <Icon name="sun" />
      {S.theme[theme.value]}
    </button>
  );
}

function Shell() {
  const [open, setOpen] = useState(false);
  const main = useRef<HTMLElement>(null);
  const here = route.value;
  const page = here.page || "overview";
  const Page = PAGES[page] ?? Overview;
  const title = S.nav[page as keyof typeof S.nav] ?? S.nav.overview;
  const first = useRef(true);
  useEffect(() => {
    document.title = `${here.name || title} – Cenote`;
    setOpen(false);
    if (first.current) first.current = false;
    else {
      main.current?.focus({ preventScroll: true });
      scrollTo(0, 0);
    }
  }, [page, here.name]);
  const states = useQuery("pool-list", { properties: ["health"] }, { on: statusNews });
  const dot = (name: string) => {
    const state = states.data?.entries.find((e) => e.name === name)?.state ?? pools.value.get(name)?.state;
    return pools.value.get(name)?.suspended
      ? "bad"
      : state === "ONLINE"
        ? "good"
        : state === "DEGRADED"
          ? "warn"
          : "bad";
  };
  const names = [...pools.value.keys()].sort();
  const mine = (id: string) =>
    page === id || (id === "datasets" && page === "dataset") ? ("page" as const) : undefined;
  const who = session.value;
  return (
    <div class="shell">
      <a class="skip" href="#main" onClick={(e) => (e.preventDefault(), main.current?.focus())}>
        {S.skip}
      </a>
      <header class="top">
        <button
          type="button"
          class="button quiet menu-button"
          aria-expanded={open}
          aria-controls="nav"
          aria-label={S.menu}
          onClick={() => setOpen(!open)}
        >
          <Icon name="menu" />
        </button>
        <a class="brand" href={to("overview")}>
          <img src="/icon.svg" alt="" width="22" height="22" />
          <span>Cenote</span>
          {who?.host ? <span class="host">{who.host}</span> : null}
        </a>
        <span class="grow" />
        <Connection />
      </header>
      <nav id="nav" class={open ? "side open" : "side"} aria-label={S.navigation}>
        <ul>
          {NAV.map(([id, icon]) => (
            <li key={id}>
              <a href={to(id)} aria-current={mine(id)}>
                <Icon name={icon} />
                {S.nav[id]}
              </a>
              {id === "overview" ? (
                <ul>
                  {names.map((name) => (
                    <li key={name}>
                      <a
                        href={to("pool", name)}
                        aria-current={page === "pool" && here.name === name ? "page" : undefined}
                      >
                        <Icon name="pool" />
                        <span class="ellipsis">{name}</span>
                        <span class={`dot ${dot(name)}`} />
                      </a>
                    </li>
                  ))}
                </ul>
              ) : null}
            </li>
          ))}
        </ul>
        <div class="side-foot">
          <p class="small">
            <strong>{who?.user}</strong>
            <br />
            <span class="muted">{who ? S.roles[who.role] : ""}</span>
          </p>
          <ThemeSwitch />
          <Button kind="quiet" icon="lock" onClick={() => openDialog(<OwnPassword />)}>
            {S.users.own}
          </Button>
          <Button
            kind="quiet"
            onClick={async () => {
              await signOut().catch(() => undefined);
              setSession(null);
            }}
          >
            {S.signIn.out}
          </Button>
          <p class="muted small">{S.version(who?.version ?? "")}</p>
        </div>
      </nav>
      <main id="main" ref={main} tabIndex={-1}>
        {connection.value.at === "lost" ? (
          <div class="lost" role="status">
            <Icon name="warn" />
            <span class="grow">{S.connection.lostText}</span>
            <Button onClick={begin}>{S.tryAgain}</Button>
          </div>
        ) : null}
        <Page key={`${page}/${page === "pool" || page === "dataset" ? here.name : ""}`} />
      </main>
    </div>
  );
}

export function App() {
  useEffect(() => {
    if (link.value === undefined) void whoIsIt();
    else session.value = null;
  }, []);
  const who = session.value;
  return (
    <>
      {who ? (
        <Shell />
      ) : who === null ? (
        <main class="alone">
          <SignIn />
        </main>
      ) : (
        <main class="alone">
          <p class="waiting">{connection.value.at === "lost" ? S.connection.lostText : S.loading}</p>
        </main>
      )}
      <Dialogs />
      {who && expired.value ? (
        <Modal>
          <SignIn again />
        </Modal>
      ) : null}
      <Notes />
    </>
  );
}
