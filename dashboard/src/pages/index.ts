// Which page each route has.
import type { ComponentType } from "preact";
import { Overview } from "./overview";

export const PAGES: Record<string, ComponentType> = {
  overview: Overview,
};
