// Light or dark: as the system says, or as it was chosen here.
import { signal } from "@preact/signals";

export type Theme = "auto" | "light" | "dark";
const KEY = "cenote-theme";
function stored(): Theme {
  try {
    const found = localStorage.getItem(KEY);
    return found === "light" || found === "dark" ? found : "auto";
  } catch {
    return "auto";
  }
}
export const theme = signal<Theme>(stored());
export function setTheme(next: Theme) {
  theme.value = next;
  try {
    localStorage.setItem(KEY, next);
  } catch {
    // Private windows may keep nothing: it holds until the page is closed.
  }
  show();
}
function show() {
  document.documentElement.dataset["theme"] = theme.value;
}
show();
