// Which page each route has.
import type { ComponentType } from "preact";
import { Audit } from "./audit";
import { CreatePool } from "./create-pool";
import { DatasetPage } from "./dataset";
import { Datasets } from "./datasets";
import { Events } from "./events";
import { Hooks } from "./hooks";
import { ImportPool } from "./import-pool";
import { Lab } from "./lab";
import { Overview } from "./overview";
import { Performance } from "./performance";
import { PoolPage } from "./pool";
import { Shares } from "./shares";
import { Tunables } from "./tunables";
import { Users } from "./users";

export const PAGES: Record<string, ComponentType> = {
  overview: Overview,
  pool: PoolPage,
  "create-pool": CreatePool,
  "import-pool": ImportPool,
  datasets: Datasets,
  dataset: DatasetPage,
  shares: Shares,
  performance: Performance,
  events: Events,
  hooks: Hooks,
  audit: Audit,
  tunables: Tunables,
  users: Users,
  lab: Lab,
};
