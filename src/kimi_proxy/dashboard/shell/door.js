// Asks for the server's token.
import { get, token, unlock } from "../lib/api.js";
import { html } from "../lib/html.js";
import { phrases } from "../lib/i18n.js";
import { Dialog } from "../parts/dialog.js";
import words from "../words/shell.js";

const t = phrases(words);

export function Door() {
  const isWrong = token() !== "";
  const submit = (event) => {
    event.preventDefault();
    unlock(new FormData(event.currentTarget).get("token").trim());
    get("/api/sessions?limit=1").catch(() => {});
  };
  return html`<${Dialog} title=${t("token_title")} onClose=${() => {}}>
    <form class="door" onSubmit=${submit}>
      <p>${t("token_text")}</p>
      <label>${t("token_label")}<input name="token" type="password" autocomplete="off" required autofocus /></label>
      ${isWrong && html`<p class="wrong" role="alert">${t("token_wrong")}</p>`}
      <button type="submit" class="main">${t("enter")}</button>
    </form>
  <//>`;
}
