// Which page each route has.
import type { ComponentType } from "preact";
import { CreatePool } from "./create-pool";
import { DatasetPage } from "./dataset";
import { Datasets } from "./datasets";
import { ImportPool } from "./import-pool";
import { Overview } from "./overview";
import { PoolPage } from "./pool";
import { Shares } from "./shares";

export const PAGES: Record<string, ComponentType> = {
  overview: Overview,
  pool: PoolPage,
  "create-pool": CreatePool,
  "import-pool": ImportPool,
  datasets: Datasets,
  dataset: DatasetPage,
  shares: Shares,
};
