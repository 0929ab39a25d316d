// The red button: old exchanges give way to a summary, once it was seen what that means; and they come back.
import { post, useAnswer } from "../lib/api.js";
import { focus, pinned } from "../state/focus.js";
import { html, useState } from "../lib/html.js";
import { useHistory } from "../state/history.js";
import { phrases } from "../lib/i18n.js";
import { useKnown } from "../state/traffic.js";
import { Banner } from "../parts/banner.js";
import { Card } from "../parts/card.js";
import { Answered, Empty, Failure } from "../parts/notice.js";
import { Start } from "../parts/start.js";
import { useSignal } from "../lib/signal.js";
import { useTurn } from "../state/refresh.js";
import words from "../words/compression.js";
import { Button, THRESHOLD } from "./compression/button.js";
import { Past } from "./compression/past.js";
import { Proposal } from "./compression/proposal.js";

const t = phrases(words);

export function View() {
  useKnown();
  useSignal(pinned);
  const id = focus();
  if (!id) return html`<div class="view"><${Card} title=${t("title")}><${Empty}>${t("no_session")}<//><${Start} /><//></div>`;
  return html`<${Session} key=${id} id=${id} />`;
}

function Session({ id }) {
  const path = `/api/compress/${encodeURIComponent(id)}`;
  const newest = useHistory(id).at(-1) ?? null;
  const stats = useAnswer(`${path}/stats`, useTurn(id, ["compression_event"]));
  const [open, setOpen] = useState(null); // "simulate" or "compress"
  const [done, setDone] = useState(null); // "compressed" or "undone"
  const [error, setError] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const undo = () => {
    setBusy(true);
    post(`${path}/undo`)
      .then(() => {
        setError(null);
        setDone("undone");
        stats.again();
      }, setError)
      .finally(() => setBusy(false));
  };
  const compressed = () => {
    setOpen(null);
    setError(null);
    setDone("compressed");
    stats.again();
  };
  return html`<div class="view">
    ${done && html`<${Banner} level="ok" title=${t(done)} onClose=${() => setDone(null)}>${t(`${done}_what`)}<//>`}
    ${error && html`<${Failure} error=${error} nothing=${t("not_seen")} />`}
    <${Button}
      newest=${newest}
      isAbsent=${Boolean(stats.error?.isAbsent)}
      active=${stats.value?.active}
      threshold=${stats.value?.threshold ?? THRESHOLD}
      onOpen=${setOpen}
      onUndo=${undo}
      isBusy=${isBusy}
    />
    <${Card} title=${t("past")}>
      <${Answered} answer=${stats}>${(found) => html`<${Past} stats=${found} />`}<//>
    <//>
    ${
      open &&
      html`<${Proposal}
      path=${path}
      isOnlyLook=${open === "simulate"}
      onClose=${() => setOpen(null)}
      onDone=${compressed}
    />`
    }
  </div>`;
}
