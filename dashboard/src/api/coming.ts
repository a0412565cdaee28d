// Actions of the dashboard's own: disks of the machine, users and tokens.
import type { Role } from "./roles";

export interface DiskEntry {
  path: string;
  by_id?: string | null;
  model?: string | null;
  serial?: string | null;
  size: number;
  rotational?: boolean;
  sector?: number;
  in_use?: string | null;
  removable?: boolean;
  pool?: string | null;
  may_be_forced?: boolean;
  read_only?: boolean;
  smart?: {
    healthy?: boolean | null;
    temperature?: number | null;
    hours?: number | null;
    wear_percent?: number | null;
    fault?: string | null;
  } | null;
}

export type DashboardRole = Role | "metrics";

export interface DashboardToken {
  name: string;
  role: DashboardRole;
  created?: number;
  ends?: number | null;
  last_used?: number | null;
}

export interface DashboardUser {
  name: string;
  role: DashboardRole;
  has_password?: boolean;
  created?: number;
  sessions?: number;
  tokens?: DashboardToken[];
}

export interface FileEntry {
  name: string;
  is_exact?: boolean;
  kind: "directory" | "file" | "symlink" | "other" | "unknown";
  size: number;
  modified: number;
  mode: number;
}

export interface Coming {
  "file-list": {
    in: { dataset: string; path: string; after?: string | null; limit?: number };
    out: { entries: FileEntry[]; next?: string | null };
  };
  "file-restore": {
    in: { snapshot: string; path: string; to?: string; overwrite?: boolean };
    out: { path: string; size: number };
  };
  "disk-list": { in: { smart?: boolean }; out: DiskEntry[] };
  "dashboard-users": { in: object; out: DashboardUser[] };
  "dashboard-user-set": { in: { name: string; role?: Role; password?: string }; out: unknown };
  "dashboard-user-remove": { in: { name: string }; out: unknown };
  "dashboard-token-create": {
    in: { name: string; role: DashboardRole; days?: number };
    out: { token: string };
  };
  "dashboard-token-remove": { in: { name: string }; out: unknown };
}

export const COMING_ROLES: Record<string, Role> = {
  "file-list": "admin",
  "file-restore": "admin",
  "disk-list": "operator",
  "dashboard-users": "admin",
  "dashboard-user-set": "admin",
  "dashboard-user-remove": "admin",
  "dashboard-token-create": "admin",
  "dashboard-token-remove": "admin",
};
