// Light, dark, or as the system has it.
import { keep, kept } from "./storage.js";
import { signal } from "./signal.js";

export const THEMES = ["auto", "light", "dark"];

const chosen = kept("theme", "auto");
export const theme = signal(THEMES.includes(chosen) ? chosen : "auto");

const system = matchMedia("(prefers-color-scheme: dark)");
system.addEventListener("change", apply);

/** What is seen now, with "auto" resolved; charts are painted again when it changes. */
export const painted = signal(resolved());

export function choose(name) {
  keep("theme", name === "auto" ? "" : name);
  theme.set(name);
  apply();
}

function apply() {
  document.documentElement.dataset.theme = resolved();
  painted.set(resolved());
}

function resolved() {
  if (theme.get() !== "auto") return theme.get();
  return system.matches ? "dark" : "light";
}

/** A colour of the style sheet, for what is painted on a canvas. */
export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
