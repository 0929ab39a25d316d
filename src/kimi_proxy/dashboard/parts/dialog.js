// A dialog: the browser's own, which keeps the focus, closes with Escape and dims the rest.
import { html, useEffect, useRef } from "../html.js";
import { phrases } from "../i18n.js";
import words from "../words/shell.js";
import { Icon } from "./icon.js";

const t = phrases(words);

/** Shown while it is rendered; `onClose` is called when the viewer wants it gone. `actions` stand at the end. */
export function Dialog({ title, onClose, actions, children, wide = false }) {
  const element = useRef(null);
  useEffect(() => {
    const dialog = element.current;
    const before = document.activeElement;
    dialog.showModal();
    return () => {
      dialog.close();
      before?.focus?.();
    };
  }, []);
  const cancelled = (event) => {
    event.preventDefault();
    onClose();
  };
  const clicked = (event) => event.target === element.current && onClose();
  return html`<dialog ref=${element} class="dialog ${wide ? "wide" : ""}" aria-label=${title} onCancel=${cancelled} onClick=${clicked}>
    <div class="dialog-body">
      <header class="dialog-head">
        <h2>${title}</h2>
        <button type="button" class="icon-button" aria-label=${t("close")} onClick=${onClose}><${Icon} name="close" /></button>
      </header>
      <div class="dialog-content">${children}</div>
      ${actions && html`<footer class="dialog-actions">${actions}</footer>`}
    </div>
  </dialog>`;
}
