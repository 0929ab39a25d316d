// Copies a text, and says so.
import { html, useState } from "../lib/html.js";
import { phrases } from "../lib/i18n.js";
import words from "../words/shell.js";
import { Icon } from "./icon.js";

const t = phrases(words);
const ICONS = { copied: "check", not_copied: "alert" };

/** `text` is the text, or a function that gives it or promises it. */
export function Copy({ text, label }) {
  const [outcome, setOutcome] = useState(""); // "copied" or "not_copied"
  const copy = async () => {
    try {
      await put(await (typeof text === "function" ? text() : text));
      setOutcome("copied");
    } catch {
      setOutcome("not_copied"); // the browser may forbid it, and the text may not come
    }
    setTimeout(() => setOutcome(""), 1500);
  };
  return html`<button type="button" class="quiet" onClick=${copy}>
    <${Icon} name=${ICONS[outcome] ?? "copy"} />
    <span aria-live="polite">${outcome ? t(outcome) : (label ?? t("copy"))}</span>
  </button>`;
}

/** Without https a browser has no clipboard for pages but on loopback; then the old way is left. */
async function put(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = Object.assign(document.createElement("textarea"), { value: text });
  (document.querySelector("dialog[open]") ?? document.body).append(area);
  area.select();
  const isDone = document.execCommand("copy");
  area.remove();
  if (!isDone) throw new Error("nothing was copied");
  return undefined;
}
