// The first screen: how full is the window, what fills it, what was saved, is anything wrong.
import { useAnswer } from "../lib/api.js";
import { focus, pinned } from "../state/focus.js";
import { html } from "../lib/html.js";
import { useHistory } from "../state/history.js";
import { phrases } from "../lib/i18n.js";
import { useKnown } from "../state/traffic.js";
import { Banner } from "../parts/banner.js";
import { Empty } from "../parts/notice.js";
import { useSignal } from "../lib/signal.js";
import { useTurn } from "../state/refresh.js";
import words from "../words/live.js";
import { Activity } from "./live/activity.js";
import { Alerts } from "./live/alerts.js";
import { Cache } from "./live/cache.js";
import { Charts } from "./live/charts.js";
import { Composition } from "./live/composition.js";
import { Requests } from "./live/requests.js";
import { Savings } from "./live/savings.js";
import { Window } from "./live/window.js";

const t = phrases(words);

export function View() {
  const { isReady, sessions } = useKnown();
  useSignal(pinned);
  const id = focus();
  const history = useHistory(id);
  const sanitizer = useAnswer("/api/sanitizer/stats", useTurn(null, ["settings_event"])).value;
  const unknown = useAnswer("/api/models", useTurn(null, ["model_unknown"])).value?.unknown;
  const newest = history.at(-1) ?? null;
  if (isReady && !id) return html`<div class="view"><${Alerts} sanitizer=${sanitizer} /><${Welcome} /></div>`;
  return html`<div class="view live">
    <${Alerts} newest=${newest} id=${id} sanitizer=${sanitizer} unknown=${unknown} />
    <div class="live-row three">
      <${Window} newest=${newest} />
      <${Composition} newest=${newest} id=${id} />
      <${Savings} newest=${newest} session=${sessions.get(id)} />
    </div>
    <${Charts} history=${history} />
    <${Cache} history=${history} />
    <${Requests} id=${id} />
    <${Activity} />
  </div>`;
}

function Welcome() {
  const address = location.origin;
  const providers = useAnswer("/api/providers").value?.providers;
  const isAlone = providers && !providers.some((each) => each.enabled || (each.on_demand && each.key === "configured"));
  return html`<section class="card welcome">
    <h2>${t("welcome")}</h2>
    ${isAlone && html`<${Banner} level="info" title=${t("no_provider")}>${t("no_provider_what")}<//>`}
    <p>${t("welcome_how")}</p>
    <pre class="mono">ANTHROPIC_BASE_URL=${address}${"\n"}OPENAI_BASE_URL=${address}/v1</pre>
    <p class="soft">${t("welcome_demo")} <code>kimi-proxy demo</code></p>
    <${Empty}>${t("waiting")}<//>
  </section>`;
}
