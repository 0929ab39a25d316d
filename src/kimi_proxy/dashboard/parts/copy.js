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
    await put(await (typeof text === "function" ? text() : text));
    setDone(true);
    setTimeout(() => setDone(false), 1500);
  };
  return html`<button type="button" class="quiet" onClick=${copy}>
    <${Icon} name=${isDone ? "check" : "copy"} />
    <span aria-live="polite">${isDone ? t("copied") : (label ?? t("copy"))}</span>
  </button>`;
}

/** Without https a browser has no clipboard for pages but on loopback; then the old way is left. */
async function put(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = Object.assign(document.createElement("textarea"), { value: text });
  (document.querySelector("dialog[open]") ?? document.body).append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
  return undefined;
}
