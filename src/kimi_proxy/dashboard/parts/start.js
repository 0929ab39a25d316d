// How to get the first request here: whole commands, each with a button that copies it.
import { html } from "../lib/html.js";
import { phrases } from "../lib/i18n.js";
import { link } from "../lib/route.js";
import words from "../words/start.js";
import { Copy } from "./copy.js";

const t = phrases(words);

export function Start() {
  const address = location.origin;
  return html`<div class="start">
    <p>${t("how")}</p>
    <${Command} text=${`ANTHROPIC_BASE_URL=${address} claude`} />
    <${Command} text=${`OPENAI_BASE_URL=${address}/v1 aider`} />
    <p>${t("init")}</p>
    <${Command} text="kimi-proxy init claude --proxy" />
    <p>${t("demo")}</p>
    <${Command} text="kimi-proxy demo" />
    <p><a href=${link("playground")}>${t("try")}</a></p>
  </div>`;
}

function Command({ text }) {
  return html`<div class="command"><pre class="mono" tabindex="0">${text}</pre><${Copy} text=${text} /></div>`;
}
