// Which session the views look at.
import { get } from "../lib/api.js";
import { focus, pin, pinned, titleOf } from "../state/focus.js";
import { html, useEffect } from "../lib/html.js";
import { phrases } from "../lib/i18n.js";
import { meet, useKnown } from "../state/traffic.js";
import { IconButton } from "../parts/icon_button.js";
import { useSignal } from "../lib/signal.js";
import words from "../words/shell.js";

const t = phrases(words);
const OFFERED = 50;

/** A session that was pinned long ago is asked for; one that is gone is pinned no more. */
function useFound(id, isMissing) {
  useEffect(() => {
    if (!id || !isMissing) return;
    get(`/api/sessions/${encodeURIComponent(id)}`).then(meet, (error) => error.isNothing && pin(""));
  }, [id, isMissing]);
}

export function SessionPicker() {
  const { sessions, isReady } = useKnown();
  const chosen = useSignal(pinned);
  useFound(chosen, isReady && !sessions.has(chosen));
  const shown = focus();
  if (!shown) return null;
  const offered = [...sessions.values()].reverse().slice(0, OFFERED);
  if (!offered.some(({ id }) => id === shown)) offered.unshift(sessions.get(shown) ?? { id: shown, title: shown });
  const busiest = chosen ? t("follow") : t("following", { title: titleOf(sessions.get(shown)) });
  return html`<div class="picker">
    <span id="pin-hint" class="unseen">${t("pin_hint")}</span>
    <select aria-label=${t("session")} aria-describedby="pin-hint" value=${chosen} onChange=${(event) => pin(event.currentTarget.value)}>
      <option value="" selected=${!chosen}>${busiest}</option>
      ${offered.map((each) => html`<option key=${each.id} value=${each.id} selected=${each.id === chosen}>${titleOf(each)}</option>`)}
    </select>
    <${IconButton} icon="pin" label=${t(chosen ? "unpin" : "pin")} isOn=${Boolean(chosen)} describedBy="pin-hint" onClick=${() => pin(chosen ? "" : shown)} />
  </div>`;
}
