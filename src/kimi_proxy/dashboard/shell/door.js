// Asks for the server's token, or for a login where the server offers one.
import { get, token, unlock, useAnswer } from "../lib/api.js";
import { html } from "../lib/html.js";
import { has, phrases } from "../lib/i18n.js";
import { Dialog } from "../parts/dialog.js";
import words from "../words/shell.js";

const t = phrases(words);
const PLACE = /^[\w/%.~!*'()-]{1,200}$/; // what the server takes, and what links of ours hold

/** Why a login failed, as the server says it in the address that it sends the browser back to. */
const reason = () => new URLSearchParams(location.search).get("login") ?? "";

/** Where a login begins, which comes back to this view. */
function start() {
  const place = location.hash.replace(/^#\/?/, "");
  return "/api/login/start" + (PLACE.test(place) ? `?place=${encodeURIComponent(place)}` : "");
}

export function Door() {
  const isWrong = token() !== "";
  const { value } = useAnswer("/api/login");
  const submit = (event) => {
    event.preventDefault();
    unlock(new FormData(event.currentTarget).get("token").trim());
    get("/api/sessions?limit=1").catch(() => {});
  };
  return html`<${Dialog} title=${t(value?.oidc ? "login_title" : "token_title")} onClose=${() => {}}>
    ${value?.oidc && html`<${Login} />`}
    <form class="door" onSubmit=${submit}>
      <p>${t(value?.oidc ? "token_instead" : "token_text")}</p>
      <label>${t("token_label")}<input name="token" type="password" autocomplete="off" required autofocus /></label>
      ${isWrong && html`<p class="wrong" role="alert">${t("token_wrong")}</p>`}
      <button type="submit" class=${value?.oidc ? undefined : "main"}>${t("enter")}</button>
    </form>
  <//>`;
}

function Login() {
  const why = `login_${reason()}`;
  return html`<div class="door">
    ${reason() && html`<p class="wrong" role="alert">${t(has(words, why) ? why : "login_invalid")}</p>`}
    <button type="button" class="main" onClick=${() => location.assign(start())}>${t("login")}</button>
  </div>`;
}
