// The red button beside the gauge: from the threshold on, one click away from where the window is seen to be full.
import { html, useState } from "../../lib/html.js";
import { phrases } from "../../lib/i18n.js";
import { Icon } from "../../parts/icon.js";
import words from "../../words/compression.js";
import { Proposal } from "../compression/proposal.js";

const t = phrases(words);

export function CompressNow({ id, newest, threshold }) {
  const isNear = threshold !== null && (newest?.percent ?? 0) >= threshold;
  return isNear ? html`<${Offer} key=${id} id=${id} />` : null;
}

function Offer({ id }) {
  const path = `/api/compress/${encodeURIComponent(id)}`;
  const [isOpen, setOpen] = useState(false);
  const [isDone, setDone] = useState(false);
  if (isDone) return html`<p class="live-small" role="status">${t("compressed")} ${t("compressed_what")}</p>`;
  const compressed = () => {
    setOpen(false);
    setDone(true);
  };
  return html`<p class="live-compress">
    <button type="button" class="red" onClick=${() => setOpen(true)}><${Icon} name="compress" />${t("compress")}</button>
    ${isOpen && html`<${Proposal} path=${path} isOnlyLook=${false} onClose=${() => setOpen(false)} onDone=${compressed} />`}
  </p>`;
}
