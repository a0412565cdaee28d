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
  smart?: { healthy?: boolean | null; temperature?: number | null; hours?: number | null } | null;
}

export interface DashboardToken {
  name: string;
  role: Role;
  expires?: number | null;
}

export interface DashboardUser {
  name: string;
  role: Role;
  tokens?: DashboardToken[];
}

export interface Coming {
  "disk-list": { in: object; out: DiskEntry[] };
  "dashboard-users": { in: object; out: DashboardUser[] };
  "dashboard-user-set": { in: { name: string; role?: Role; password?: string }; out: unknown };
  "dashboard-user-remove": { in: { name: string }; out: unknown };
  "dashboard-token-create": { in: { name: string; role: Role; days?: number }; out: { token: string } };
  "dashboard-token-remove": { in: { name: string }; out: unknown };
}

export const COMING_ROLES: Record<string, Role> = {
  "disk-list": "operator",
  "dashboard-users": "admin",
  "dashboard-user-set": "admin",
  "dashboard-user-remove": "admin",
  "dashboard-token-create": "admin",
  "dashboard-token-remove": "admin",
};
