// How much of a subscription's limits is used, as the provider said with the newest request of a session.
import { share, when } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { phrases } from "../../lib/i18n.js";
import { Explained } from "../../parts/explained.js";
import words from "../../words/live.js";

const t = phrases(words);

export function Quota({ history }) {
  const quota = history.findLast((metric) => metric.quota?.length)?.quota ?? [];
  if (quota.length === 0) return null;
  return html`<dl class="live-facts number" aria-label=${t("quota")}>
    ${quota.map(
      ({ window, used, resets_at: resets }) => html`<div key=${window}>
        <dt><${Explained} text=${t("quota_what")}>${t("quota_of", { window })}<//></dt>
        <dd>${resets ? t("quota_resets", { used: share(100 * used), at: when(resets) }) : share(100 * used)}</dd>
      </div>`,
    )}
  </dl>`;
}
