// Everything that the page can have done: the request, and the command line that does the same. One list, so that
// what is shown is what happens.
export type { Deed } from "./deeds/made";
export * from "./deeds/daemon";
export * from "./deeds/datasets";
export * from "./deeds/lab";
export * from "./deeds/pools";
