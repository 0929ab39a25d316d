// The first screen: how full is the window, what fills it, what was saved, is anything wrong.
import { useAnswer } from "../lib/api.js";
import { focus, pinned } from "../state/focus.js";
import { html, useState } from "../lib/html.js";
import { useHistory } from "../state/history.js";
import { phrases } from "../lib/i18n.js";
import { useKnown } from "../state/traffic.js";
import { Banner } from "../parts/banner.js";
import { Empty } from "../parts/notice.js";
import { Start } from "../parts/start.js";
import { useSignal } from "../lib/signal.js";
import { useTurn, useTurnAfter } from "../state/refresh.js";
import words from "../words/live.js";
import { Activity } from "./live/activity.js";
import { Alerts } from "./live/alerts.js";
import { Cache } from "./live/cache.js";
import { Charts } from "./live/charts.js";
import { Composition } from "./live/composition.js";
import { Money } from "./live/money.js";
import { Range } from "./live/range.js";
import { Requests } from "./live/requests.js";
import { Savings } from "./live/savings.js";
import { Window } from "./live/window.js";

const t = phrases(words);
const FILLING = 50; // percent of the window; below it nobody needs to know from where on compression helps

export function View() {
  const { isReady, sessions } = useKnown();
  useSignal(pinned);
  const id = focus();
  const history = useHistory(id);
  const sanitizer = useAnswer("/api/sanitizer/stats", useTurn(null, ["settings_event"])).value;
  const unknown = useAnswer("/api/models", useTurn(null, ["model_unknown"])).value?.unknown;
  const isObserving = sanitizer?.mode === "observe";
  const [days, choose] = useState({ since: "", until: "" });
  const saved = useAnswer(savingsOf(days), useTurnAfter(mayChangeSums));
  const newest = history.at(-1) ?? null;
  const isFilling = (newest?.percent ?? 0) >= FILLING;
  const compression = useAnswer(isFilling ? `/api/compress/${encodeURIComponent(id)}/stats` : null);
  const threshold = compression.value?.threshold ?? null;
  if (isReady && !id) return html`<div class="view"><${Alerts} sanitizer=${sanitizer} /><${Welcome} /></div>`;
  return html`<div class="view live">
    <${Alerts} newest=${newest} id=${id} sanitizer=${sanitizer} unknown=${unknown} threshold=${threshold} />
    <${Money} answer=${saved} isObserving=${isObserving} />
    <div class="live-row three">
      <${Window} id=${id} newest=${newest} history=${history} threshold=${threshold} />
      <${Composition} newest=${newest} id=${id} />
      <${Savings} newest=${newest} session=${sessions.get(id)} />
    </div>
    <${Charts} history=${history} />
    <${Range} answer=${saved} days=${days} onChoose=${choose} isObserving=${isObserving} />
    <${Cache} history=${history} />
    <${Requests} id=${id} />
    <${Activity} />
  </div>`;
}

const mayChangeSums = ({ type }) => ["init", "metric_updated", "session_deleted"].includes(type);

/** Days begin where the viewer is. */
function savingsOf({ since, until }) {
  const asked = new URLSearchParams({ timezone: Intl.DateTimeFormat().resolvedOptions().timeZone ?? "" });
  if (since) asked.set("since", since);
  if (until) asked.set("until", until);
  return `/api/savings?${asked}`;
}

function Welcome() {
  const providers = useAnswer("/api/providers").value?.providers;
  const isAlone = providers && !providers.some((each) => each.enabled || (each.on_demand && each.key === "configured"));
  return html`<section class="card welcome">
    <h2>${t("welcome")}</h2>
    ${isAlone && html`<${Banner} level="info" title=${t("no_provider")}>${t("no_provider_what")}<//>`}
    <${Start} />
    <${Empty}>${t("waiting")}<//>
  </section>`;
}
