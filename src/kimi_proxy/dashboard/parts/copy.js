// Copies a text, and says so.
import { html, useState } from "../html.js";
import { phrases } from "../i18n.js";
import words from "../words/shell.js";
import { Icon } from "./icon.js";

const t = phrases(words);

/** `text` is the text, or a function that gives it or promises it. */
export function Copy({ text, label }) {
  const [isDone, setDone] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(await (typeof text === "function" ? text() : text));
    setDone(true);
    setTimeout(() => setDone(false), 1500);
  };
  return html`<button type="button" class="quiet" onClick=${copy}>
    <${Icon} name=${isDone ? "check" : "copy"} />
    <span aria-live="polite">${isDone ? t("copied") : (label ?? t("copy"))}</span>
  </button>`;
}
