// The red button beside the gauge: from the threshold on, one click away from where the window is seen to be full.
import { useAnswer } from "../../lib/api.js";
import { html, useState } from "../../lib/html.js";
import { phrases } from "../../lib/i18n.js";
import { Icon } from "../../parts/icon.js";
import { useTurn } from "../../state/refresh.js";
import words from "../../words/compression.js";
import { THRESHOLD } from "../compression/button.js";
import { Proposal } from "../compression/proposal.js";

const t = phrases(words);

export function CompressNow({ id, newest }) {
  const isNear = (newest?.percent ?? 0) >= THRESHOLD;
  return isNear ? html`<${Offer} key=${id} id=${id} newest=${newest} />` : null;
}

function Offer({ id, newest }) {
  const path = `/api/compress/${encodeURIComponent(id)}`;
  const stats = useAnswer(`${path}/stats`, useTurn(id, ["compression_event"]));
  const [isOpen, setOpen] = useState(false);
  const [isDone, setDone] = useState(false);
  if (isDone) return html`<p class="live-small" role="status">${t("compressed")} ${t("compressed_what")}</p>`;
  if (stats.error || newest.percent < (stats.value?.threshold ?? THRESHOLD)) return null;
  const compressed = () => {
    setOpen(false);
    setDone(true);
  };
  return html`<p class="live-compress">
    <button type="button" class="red" onClick=${() => setOpen(true)}><${Icon} name="compress" />${t("compress")}</button>
    ${isOpen && html`<${Proposal} path=${path} isOnlyLook=${false} onClose=${() => setOpen(false)} onDone=${compressed} />`}
  </p>`;
}
