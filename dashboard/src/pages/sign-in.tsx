// Signing in: by the link that `cenote dashboard` prints, or by name and password.
import { signal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import { ApiError, signIn } from "../api/client";
import { Button, CommandLine, Fault, TextField } from "../parts/ui";
import { look } from "../route";
import { setSession } from "../state";
import { S } from "../strings";

const LINK = /^#sign-in=(.+)$/;
/** The token of a one-time link, taken out of the address; the page stays where it was. */
function takeLink(back: string): string | undefined {
  const found = LINK.exec(location.hash)?.[1];
  if (found) {
    history.replaceState(null, "", `${location.pathname}${back}`);
    look();
  }
  return found ? decodeURIComponent(found) : undefined;
}
/** A link that waits to be used. */
export const link = signal(takeLink("#/overview"));
addEventListener("hashchange", (event) => {
  const before = new URL(event.oldURL).hash;
  if (!LINK.test(location.hash)) return;
  link.value = takeLink(LINK.test(before) ? "#/overview" : before);
});

export function SignIn({ again }: { again?: boolean }) {
  const [user, setUser] = useState("");
  const [password, setPassword] = useState("");
  const [error, setError] = useState<ApiError | undefined>();
  const [busy, setBusy] = useState(link.value !== undefined);
  const enter = async (given: { link: string } | { user: string; password: string }) => {
    setBusy(true);
    setError(undefined);
    try {
      setSession(await signIn(given));
    } catch (caught) {
      setError(caught instanceof ApiError ? caught : new ApiError("failed", String(caught), 0));
    } finally {
      setBusy(false);
    }
  };
  useEffect(() => {
    const token = link.value;
    if (token === undefined) return;
    link.value = undefined;
    void enter({ link: token });
  }, [link.value]);
  return (
    <form
      class="sign-in"
      onSubmit={(e) => {
        e.preventDefault();
        if (!busy) void enter({ user, password });
      }}
    >
      <h1 id="dialog-title">{again ? S.signIn.again : S.signIn.title}</h1>
      {again ? <p class="muted">{S.signIn.againText}</p> : null}
      <TextField label={S.signIn.user} value={user} set={setUser} autocomplete="username" focus />
      <TextField
        label={S.signIn.password}
        value={password}
        set={setPassword}
        type="password"
        autocomplete="current-password"
      />
      {error ? <Fault error={error} /> : null}
      {error?.retryAfter ? <p class="muted small">{S.signIn.retry(error.retryAfter)}</p> : null}
      <Button type="submit" kind="main" off={busy ? S.working : undefined}>
        {S.signIn.enter}
      </Button>
      <p class="muted small">{S.signIn.linkText}</p>
      <CommandLine line="cenote dashboard" />
    </form>
  );
}
