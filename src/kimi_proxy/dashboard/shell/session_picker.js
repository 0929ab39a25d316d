// Which session the views look at.
import { focus, pin, pinned, titleOf } from "../focus.js";
import { html } from "../html.js";
import { phrases } from "../i18n.js";
import { useKnown } from "../known.js";
import { Icon } from "../parts/icon.js";
import { useSignal } from "../signal.js";
import words from "../words/shell.js";

const t = phrases(words);
const OFFERED = 50;

export function SessionPicker() {
  const { sessions } = useKnown();
  const chosen = useSignal(pinned);
  const shown = focus();
  if (!shown) return null;
  const offered = [...sessions.values()].reverse().slice(0, OFFERED);
  if (!offered.some(({ id }) => id === shown)) offered.unshift(sessions.get(shown) ?? { id: shown, title: shown });
  const busiest = chosen ? t("follow") : t("following", { title: titleOf(sessions.get(shown)) });
  return html`<div class="picker" title=${t("pin_hint")}>
    <select aria-label=${t("session")} value=${chosen} onChange=${(event) => pin(event.currentTarget.value)}>
      <option value="" selected=${!chosen}>${busiest}</option>
      ${offered.map((each) => html`<option key=${each.id} value=${each.id} selected=${each.id === chosen}>${titleOf(each)}</option>`)}
    </select>
    <button
      type="button"
      class="icon-button"
      aria-pressed=${chosen ? "true" : "false"}
      aria-label=${chosen ? t("unpin") : t("pin")}
      title=${chosen ? t("unpin") : t("pin")}
      onClick=${() => pin(chosen ? "" : shown)}
    >
      <${Icon} name="pin" />
    </button>
  </div>`;
}
