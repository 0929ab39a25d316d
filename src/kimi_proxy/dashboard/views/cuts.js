// Every prune and mask, each with the way back: a list, a search in the originals, and one of them side by side.
import { html } from "../lib/html.js";
import { route } from "../lib/route.js";
import { useSignal } from "../lib/signal.js";
import { CutList } from "./cuts/list.js";
import { OneCut } from "./cuts/one.js";
import { Search } from "./cuts/search.js";

export function View() {
  const [, id, line] = useSignal(route);
  if (id) return html`<div class="view"><${OneCut} key=${`${id}:${line}`} id=${id} line=${Number(line) || 0} /></div>`;
  return html`<div class="view"><${Search} /><${CutList} /></div>`;
}
