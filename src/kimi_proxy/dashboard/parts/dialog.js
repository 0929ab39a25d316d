// A dialog: the browser's own, which keeps the focus, closes with Escape and dims the rest.
import { html, useEffect, useRef } from "../lib/html.js";
import { phrases } from "../lib/i18n.js";
import words from "../words/shell.js";
import { Icon } from "./icon.js";

const t = phrases(words);

/** Shown while it is rendered; `onClose` is called when the viewer wants it gone. `actions` stand at the end. */
export function Dialog({ title, onClose, actions, children, wide = false }) {
  const element = useRef(null);
  const isPressed = useRef(false); // the pointer went down beside it
  const close = useRef(null);
  close.current = onClose;
  useEffect(() => {
    const dialog = element.current;
    const before = document.activeElement;
    // Escape pressed twice closes it whatever the page says; whether it goes is decided by the view that draws it.
    const closed = () => {
      dialog.showModal();
      close.current();
    };
    dialog.showModal();
    dialog.addEventListener("close", closed);
    return () => {
      dialog.removeEventListener("close", closed);
      dialog.close();
      before?.focus?.();
    };
  }, []);
  const cancelled = (event) => {
    event.preventDefault();
    onClose();
  };
  // A selection that began inside may end beside it.
  const pressed = (event) => (isPressed.current = event.target === element.current);
  const clicked = (event) => isPressed.current && event.target === element.current && onClose();
  return html`<dialog ref=${element} class="dialog ${wide ? "wide" : ""}" aria-label=${title} onCancel=${cancelled} onPointerDown=${pressed} onClick=${clicked}>
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
