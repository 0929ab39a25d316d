// Whether a changed setting was written down, and why not.
import { html } from "../../lib/html.js";
import { has, phrases } from "../../lib/i18n.js";
import { Banner } from "../../parts/banner.js";
import { Detail } from "../../parts/notice.js";
import words from "../../words/settings.js";

const t = phrases(words);

export function Saved({ done, file }) {
  return done.saved
    ? html`<${Banner} level="ok" title=${t("saved")}>${t("saved_in", { file })}<//>`
    : html`<${Banner} level="caution" title=${t("not_saved")}><${Problem} ...${done} /><//>`;
}

/** Why it could not be written down; of a file's own fault the server says more, which has read it. */
function Problem({ code, problem }) {
  const key = `problem ${code}`;
  if (!has(words, key)) return html`<span lang="en">${problem}</span>`;
  return html`${t(key)} ${code !== "no_file" && html`<${Detail} text=${problem} />`}`;
}
