// The project's memory: what every new conversation is given, to read and to write.
import { post, useAnswer } from "../../lib/api.js";
import { html, useEffect, useState } from "../../lib/html.js";
import { phrases } from "../../lib/i18n.js";
import { Banner } from "../../parts/banner.js";
import { Card } from "../../parts/card.js";
import { Answered, Failure } from "../../parts/notice.js";
import words from "../../words/settings.js";

const t = phrases(words);

export function Memory({ isOn }) {
  const answer = useAnswer("/api/memory/load");
  return html`<${Card} title=${t("memory")} note=${t(isOn ? "memory_on" : "memory_off")}>
    <${Answered} answer=${answer}>${(stored) => html`<${Editor} stored=${stored} />`}<//>
  <//>`;
}

/** What is not a text was saved as JSON by a program; it is shown, and becomes a text when it is changed here. */
const textOf = ({ content }) => (typeof content === "string" ? content : JSON.stringify(content ?? "", null, 2));

function Editor({ stored }) {
  const [text, setText] = useState(textOf(stored));
  const [saved, setSaved] = useState(textOf(stored));
  const [state, setState] = useState({});
  useEffect(() => {
    setText(textOf(stored));
    setSaved(textOf(stored));
  }, [stored]);
  const save = async () => {
    setState({ isSaving: true });
    try {
      const now = textOf(await post("/api/memory/save", { content: text }));
      setSaved(now);
      setState({ isSaved: true });
    } catch (error) {
      setState({ error });
    }
  };
  return html`<form class="memory-editor" onSubmit=${(event) => (event.preventDefault(), save())}>
    <textarea rows="8" aria-label=${t("memory")} placeholder=${t("memory_hint")} value=${text}
      onInput=${(event) => (setText(event.currentTarget.value), setState({}))}></textarea>
    <button type="submit" disabled=${text === saved || state.isSaving}>${t("memory_save")}</button>
    ${state.error && html`<${Failure} error=${state.error} />`}
    ${state.isSaved && html`<${Banner} level="ok" title=${t("memory_saved")}>${t("memory_saved_what")}<//>`}
  </form>`;
}
