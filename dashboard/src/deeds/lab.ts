// Deeds of the lab. The daemon keeps an experiment in a folder of its own; the command line has it in the folder
// that is named there.
import { commandLine } from "../format";
import { plain, type Deed } from "./made";

export const startLab = (
  name: string,
  experiment: string,
  how: { quick: boolean; rounds?: number | undefined; recipe?: string | undefined },
): Deed =>
  plain("lab-start", { name, experiment, quick: how.quick, ...(how.rounds ? { rounds: how.rounds } : {}) }, [
    "lab",
    "run",
    how.recipe ?? `${name || "NAME"}.toml`,
    ...(how.quick ? ["--quick"] : []),
    ...(how.rounds ? ["--rounds", String(how.rounds)] : []),
    "--output",
    name || "NAME",
  ]);
/** Interrupting is a signal to the command. */
export const stopLab = (name: string): Deed => ({
  action: "lab-stop",
  request: { name },
  line: "kill -INT $(pgrep -f 'cenote lab run')",
});
export const resumeLab = (name: string, rounds?: number | undefined): Deed =>
  plain("lab-resume", { name, ...(rounds ? { more_rounds: rounds } : {}) }, [
    "lab",
    "resume",
    ...(rounds ? ["--rounds", "N"] : []),
    name,
  ]);
export const removeLab = (name: string, force: boolean): Deed => ({
  action: "lab-remove",
  request: { name, ...(force ? { force } : {}) },
  line: commandLine(["rm", "-r", name]),
});
/** `lines` are the commands that the daemon names, asked before. */
export const applyLab = (name: string, variant: string, dataset: string, lines: string[]): Deed => ({
  action: "lab-apply",
  request: { name, variant, dataset },
  line: lines.join("\n"),
});
export const revertLab = (name: string, dataset: string, was: [string, string | null][]): Deed => {
  const words = was.map(([property, value]) =>
    value === null ? ["zfs", "inherit", property, dataset] : ["zfs", "set", `${property}=${value}`, dataset],
  );
  return {
    action: "lab-revert",
    request: { name, dataset },
    line: words.map((w) => `cenote ${commandLine(w)}`).join("\n"),
  };
};
