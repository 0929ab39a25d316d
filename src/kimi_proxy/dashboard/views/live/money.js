// The money: what was saved today, this week and this month, and what that cost.
import { percent, tokens, usd } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { phrases } from "../../lib/i18n.js";
import { Card } from "../../parts/card.js";
import { Explained } from "../../parts/explained.js";
import words from "../../words/live.js";

const t = phrases(words);
const PERIODS = ["today", "week", "month"];
const isNumber = (value) => typeof value === "number";

/** `answer` is that of `/api/savings`; `isObserving` while requests leave as they came. */
export function Money({ answer, isObserving }) {
  const periods = answer.value?.periods;
  return html`<${Card} title=${t(isObserving ? "money_observed" : "money")} name="live-money" aside=${explained("money_net")}>
    <div class="money-periods" aria-busy=${periods ? undefined : "true"}>
      ${PERIODS.map((name) => html`<${Period} key=${name} name=${name} sums=${periods?.[name]} isObserving=${isObserving} />`)}
    </div>
  <//>`;
}

function Period({ name, sums, isObserving }) {
  const { amount, share } = savedIn(sums, isObserving);
  return html`<div class="money-period">
    <h3>${t(`period_${name}`)}</h3>
    <p class="live-big number">${amount} ${share && html`<span>${share}</span>`}</p>
    ${
      sums &&
      !isObserving &&
      html`<p class="money-costs number">
        <span>${explained("price_of_saving")} ${usd(sums.overhead_usd)}</span>
        <span>${explained("cache_lost")} ${usd(sums.cache_lost_usd)}</span>
      </p>`
    }
    ${sums && !isObserving && sums.observed_tokens > 0 && html`<p class="money-costs number">${wouldHave(sums)}</p>`}
  </div>`;
}

/** In money, or in tokens while no price is known; with the share of what requests would have cost. */
export function savedIn(sums, isObserving = false) {
  if (!sums) return { amount: "–", share: "" };
  const [money, counted] = isObserving
    ? [sums.observed_usd, sums.observed_tokens]
    : [sums.net_saved_usd, sums.net_saved_tokens];
  const [part, whole] = isNumber(money) ? [money, sums.cost_before_usd] : [counted, sums.tokens_before];
  return {
    amount: isNumber(money) ? usd(money) : t("n_tokens", { tokens: tokens(counted) }),
    // A loss of more than all there was says less as a share than as an amount.
    share: whole > 0 && part >= -whole ? percent((100 * part) / whole, 1) : "",
  };
}

const wouldHave = (sums) => {
  const { amount } = savedIn(sums, true);
  return t("would_have_saved", { amount });
};

/** A word with what it means. */
const explained = (key) => html`<${Explained} text=${t(`${key}_what`)}>${t(key)}<//>`;
