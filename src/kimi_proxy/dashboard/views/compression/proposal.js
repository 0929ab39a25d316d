// What compression would do, shown before it is done.
import { post } from "../../lib/api.js";
import { count, percent, share as shareText, tokens } from "../../lib/format.js";
import { html, useEffect, useState } from "../../lib/html.js";
import { phrases } from "../../lib/i18n.js";
import { Dialog } from "../../parts/dialog.js";
import { Failure } from "../../parts/notice.js";
import words from "../../words/compression.js";

const t = phrases(words);

export function Proposal({ path, isOnlyLook, onClose, onDone }) {
  const [shown, setShown] = useState(null);
  const [error, setError] = useState(null);
  const [isBusy, setBusy] = useState(false);
  useEffect(() => {
    post(`${path}/simulate`).then(setShown, setError);
  }, [path]);
  const confirm = () => {
    setBusy(true);
    post(path, { force: false })
      .then(onDone, (failure) => setError(measured(failure)))
      .finally(() => setBusy(false));
  };
  const actions = html`
    <button type="button" onClick=${onClose}>${t(isOnlyLook ? "close" : "cancel")}</button>
    ${
      !isOnlyLook &&
      html`<button type="button" class="red" disabled=${!shown || isBusy} onClick=${confirm}>${t(isBusy ? "busy" : "confirm")}</button>`
    }
  `;
  return html`<${Dialog} wide title=${t(isOnlyLook ? "simulated" : "confirm_title")} onClose=${onClose} actions=${actions}>
    ${error && html`<${Failure} error=${error} nothing=${t("not_seen")} />`}
    ${!shown && !error && html`<p class="empty" role="status">${t("looking")}</p>`}
    ${shown && html`<${Change} shown=${shown} isOnlyLook=${isOnlyLook} />`}
  <//>`;
}

function Change({ shown, isOnlyLook }) {
  const { original_tokens: before, compressed_tokens: after } = shown;
  const saved = before > 0 ? (100 * (before - after)) / before : 0;
  return html`
    <div class="change">
      <${Line} label=${t("before")} value=${before} whole=${before} />
      <${Line} label=${t("after")} value=${after} whole=${before} />
    </div>
    <p>
      <strong class="number">${t("change", { tokens: tokens(before - after), share: percent(saved) })}</strong>${" "}
      ${t("messages", { removed: count(shown.messages_removed), kept: count(shown.messages_kept) })}
    </p>
    <section class="side" aria-label=${t("summary")}>
      <header>
        <h3>${t("summary")}</h3>
        <span class="soft">${t(shown.summary_by === "provider" ? "by_provider" : "by_heuristic")}</span>
      </header>
      <pre tabindex="0" class="mono">${shown.summary}</pre>
    </section>
    <p class="soft">${t(isOnlyLook ? "nothing_done" : "reversible")}</p>
  `;
}

function Line({ label, value, whole }) {
  const width = whole > 0 ? Math.min(100, (100 * value) / whole) : 0;
  return html`<div class="change-line">
    <span class="soft">${label}</span>
    <span class="change-bar"><span style=${{ width: `${width}%` }}></span></span>
    <strong class="number">${tokens(value)}</strong>
  </div>`;
}

/** Below the threshold the server gives both shares. */
function measured(failure) {
  const { current_percentage: share, threshold } = failure.body ?? {};
  if (failure.code === "below_threshold") failure.details = { share: shareText(share), threshold: percent(threshold) };
  return failure;
}
