// What was saved, net: after what our own tools and lost caches cost. Where only an estimate is known, it says so.
import { percent, tokens, usd } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { phrases } from "../../lib/i18n.js";
import { known } from "../../state/traffic.js";
import { Card } from "../../parts/card.js";
import { Explained } from "../../parts/explained.js";
import { reasonText } from "../../codes/reasons.js";
import words from "../../words/live.js";

const t = phrases(words);
const isNumber = (value) => typeof value === "number";

export function Savings({ newest, session }) {
  const mine = saved(session);
  const all = saved(known.totals);
  return html`<${Card} title=${t("savings")} name="live-savings" aside=${explained(mine.isNet ? "net" : "estimated")}>
    <p class="live-big number">${tokens(mine.tokens)} <span>${t("tokens_in_session")}</span></p>
    <dl class="live-facts number">
      ${mine.isNet && html`<${Gross} left=${session.tokens_saved} price=${mine.tokens - session.tokens_saved} />`}
      ${isNumber(mine.usd) && html`<${Fact} label=${explained("worth")} value=${usd(mine.usd)} />`}
      <${Fact} label=${t("cost_session")} value=${usd(session?.cost_usd)} />
      ${known.totals && html`<${Fact} label=${t("all_sessions", { n: known.totals.sessions })} value=${together(all)} />`}
    </dl>
    ${newest && html`<${Last} newest=${newest} />`}
  <//>`;
}

/** A word of this card with what it means. */
const explained = (key) => html`<${Explained} text=${t(`${key}_what`)}>${t(key)}<//>`;

const Fact = ({ label, value }) => html`<div><dt>${label}</dt><dd>${value}</dd></div>`;

const Gross = ({ left, price }) => html`
  <${Fact} label=${explained("gross")} value=${tokens(left)} />
  <${Fact} label=${explained("price_of_saving")} value=${tokens(price)} />
`;

const together = (all) => (isNumber(all.usd) ? `${tokens(all.tokens)} · ${usd(all.usd)}` : tokens(all.tokens));

function saved(sums) {
  if (!sums) return { tokens: 0, isNet: false, usd: null };
  const isNet = isNumber(sums.net_saved_tokens);
  return { tokens: isNet ? sums.net_saved_tokens : sums.tokens_saved, isNet, usd: sums.net_saved_usd ?? null };
}

/** The newest request: what it was spared of, or why nothing was done. */
function Last({ newest }) {
  if (newest.tokens_saved > 0) {
    const share = percent((100 * newest.tokens_saved) / (newest.tokens_saved + newest.tokens_estimated));
    return html`
      <p class="live-last done">${t("last_saved", { tokens: tokens(newest.tokens_saved), share })}</p>
      ${newest.reasons?.length > 0 && html`<${Why} title="nothing_new" reasons=${newest.reasons} />`}
    `;
  }
  const reasons = newest.reasons?.length ? newest.reasons : ["nothing_to_do"];
  return html`<${Why} title="doing_nothing" reasons=${reasons} />`;
}

const Why = ({ title, reasons }) =>
  html`<p class="live-last"><strong>${t(title)}</strong> ${reasons.map(reasonText).join(" ")}</p>`;
