// Deeds of the daemon itself: tunables, alerts, users.
import type { Schemas } from "../api/client";
import type { Role } from "../api/roles";
import { plain, type Deed } from "./made";

type DashboardRole = Schemas["DashboardRole"];

export const setTunable = (name: string, value: string | null, save: boolean) =>
  plain(
    "tunable-set",
    { settings: [[name, value]], save },
    value === null
      ? ["tunable", "reset", ...(save ? ["--save"] : []), name]
      : ["tunable", "set", ...(save ? ["--save"] : []), `${name}=${value}`],
  );
export type HookAction = Schemas["HookAction"];
/** A secret is asked for by the command line, and not part of it. */
export function addHook(
  name: string,
  events: string[],
  action: HookAction,
  how: { secret?: string | undefined; limit?: number | undefined } = {},
): Deed {
  const words =
    "command" in action
      ? ["--command", action.command]
      : "webhook" in action
        ? ["--webhook", action.webhook]
        : "mail" in action
          ? [
              ...action.mail.to.flatMap((t) => ["--mail", t]),
              "--relay",
              action.mail.relay,
              "--from",
              action.mail.from,
            ]
          : [
              "--ntfy",
              action.ntfy.url,
              ...(action.ntfy.priority ? ["--priority", String(action.ntfy.priority)] : []),
            ];
  return plain(
    "hook-add",
    {
      hook: {
        name,
        events,
        action,
        ...(how.secret !== undefined ? { secret: how.secret } : {}),
        ...(how.limit ? { limit_s: how.limit } : {}),
      },
    },
    [
      "hooks",
      "add",
      ...events.flatMap((e) => ["-e", e]),
      ...words,
      ...(how.secret ? ["--secret"] : how.secret === "" ? ["--no-secret"] : []),
      ...(how.limit ? ["--limit", String(how.limit)] : []),
      name || "NAME",
    ],
  );
}
export const removeHook = (name: string) => plain("hook-remove", { name }, ["hooks", "remove", name]);
export const testHook = (name: string, dryRun: boolean) =>
  plain("hook-test", { name, dry_run: dryRun }, ["hooks", "test", ...(dryRun ? ["--dry-run"] : []), name]);
export const clearEvents = () => plain("events-clear", {}, ["zpool", "events", "-c"]);
// Passwords are asked for by the command line, and not part of it.
export const setUser = (name: string, role: Role, password: string) =>
  plain("dashboard-user-set", { name, role, ...(password ? { password } : {}) }, [
    "dashboard",
    "user",
    "set",
    name || "NAME",
    "--role",
    role,
  ]);
export const removeUser = (name: string) =>
  plain("dashboard-user-remove", { name }, ["dashboard", "user", "remove", name]);
export const createToken = (name: string, role: DashboardRole, days: number | undefined) =>
  plain("dashboard-token-create", { name, role, ...(days ? { days } : {}) }, [
    "dashboard",
    "token",
    "create",
    name || "NAME",
    "--role",
    role,
    ...(days ? ["--days", String(days)] : []),
  ]);
export const removeToken = (name: string) =>
  plain("dashboard-token-remove", { name }, ["dashboard", "token", "remove", name]);
/** The own password. The command asks for both. */
export const setPassword = (user: string, old: string, fresh: string) =>
  plain("dashboard-password-set", { old, new: fresh }, ["dashboard", "user", "set", user || "NAME"]);
