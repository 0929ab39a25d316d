// Try the pruner: paste a text, say what you want to know of it, and watch its lines fold. Nothing is kept.
import { post, useAnswer } from "../lib/api.js";
import { count, duration, percent } from "../lib/format.js";
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { has, phrases } from "../lib/i18n.js";
import { Card } from "../parts/card.js";
import { Copy } from "../parts/copy.js";
import { Lines } from "../parts/lines.js";
import { Empty, Failure } from "../parts/notice.js";
import words from "../words/playground.js";
import warnings from "../words/warnings.js";
import { curl, example, guess } from "./playground/question.js";

const t = phrases(words);
const warning = phrases(warnings);
const warned = (code) => (has(warnings, code) ? warning(code) : code);
const PAUSE_MS = 250; // of typing, before we ask
const MAX_CHARS = 2_000_000; // what the pruner takes
let last = { text: "", goal: "", type: "code", ratio: 0.6, keep: 10 }; // it is there again when a person comes back

export function View() {
  const [asked, setAsked] = useState(last);
  const change = (part) => setAsked((before) => (last = { ...before, ...part }));
  const { answer, error, isBusy } = usePruned(asked);
  return html`<div class="view playground">
    <${Question} asked=${asked} change=${change} />
    <${Card} title=${t("result")} aside=${isBusy && html`<span role="status">${t("pruning")}</span>`}>
      ${error && html`<${Failure} error=${error} />`}
      ${asked.text ? answer && html`<${Result} asked=${asked} answer=${answer} />` : html`<${Empty}>${t("empty")}<//>`}
    <//>
  </div>`;
}

/** The pruner's answer to what is asked, a moment after the last change; answers to older questions are dropped. */
function usePruned(asked) {
  const [seen, see] = useState({ answer: null, error: null, isBusy: false });
  const round = useRef(0);
  useEffect(() => {
    const mine = ++round.current;
    if (!asked.text) return see({ answer: null, error: null, isBusy: false });
    const timer = setTimeout(() => {
      const began = performance.now();
      see((before) => ({ ...before, isBusy: true }));
      post("/api/playground/prune", { ...body(asked), explain: true }).then(
        (answer) => mine === round.current && see({ answer: { ...answer, text: asked.text, took: performance.now() - began }, error: null, isBusy: false }),
        (error) => mine === round.current && see({ answer: null, error, isBusy: false }),
      );
    }, PAUSE_MS);
    return () => clearTimeout(timer);
  }, [asked]);
  return seen;
}

const body = ({ text, goal, type, ratio, keep }) => ({
  text,
  goal_hint: goal,
  source_type: type,
  options: { max_prune_ratio: ratio, min_keep_lines: keep, timeout_ms: 5000, annotate_lines: true, include_markers: true },
});

function Question({ asked, change }) {
  const [isOver, setOver] = useState(false);
  const [problem, setProblem] = useState("");
  const take = async (file) => {
    if (!file) return;
    setProblem(file.size > 4 * MAX_CHARS ? t("too_large") : "");
    if (file.size > 4 * MAX_CHARS) return;
    try {
      change({ text: (await file.text()).slice(0, MAX_CHARS), type: guess(file.name) });
    } catch {
      setProblem(t("unreadable")); // a folder, or gone meanwhile
    }
  };
  const drop = (event) => {
    setOver(false);
    const [file] = event.dataTransfer.files;
    if (!file) return; // words: the browser puts them where they were dropped
    event.preventDefault();
    take(file);
  };
  const chose = ({ currentTarget: field }) => {
    take(field.files[0]);
    field.value = ""; // else there is no event when the same file is chosen again
  };
  const dragged = (event) => {
    event.preventDefault();
    setOver(true);
  };
  return html`<${Card} title=${t("question")} note=${t("note")}>
    <div class="playground-form">
      <label class="playground-goal">${t("goal")}
        <input value=${asked.goal} placeholder=${t("goal_hint")} onInput=${(event) => change({ goal: event.currentTarget.value })} />
      </label>
      <label>${t("type")}
        <select value=${asked.type} onChange=${(event) => change({ type: event.currentTarget.value })}>
          ${["code", "logs", "docs"].map((type) => html`<option key=${type} value=${type} selected=${type === asked.type}>${t(`as_${type}`)}</option>`)}
        </select>
      </label>
      <label>${t("ratio", { share: percent(100 * asked.ratio) })}
        <input type="range" min="0" max="0.95" step="0.05" value=${asked.ratio} aria-valuetext=${percent(100 * asked.ratio)} onInput=${(event) => change({ ratio: Number(event.currentTarget.value) })} />
      </label>
      <label>${t("keep")}
        <input type="number" min="0" max="100000" value=${asked.keep} onInput=${(event) => change({ keep: Math.max(0, Math.floor(Number(event.currentTarget.value) || 0)) })} />
      </label>
    </div>
    <textarea class="playground-text ${isOver ? "over" : ""}" aria-label=${t("text")} placeholder=${t("text_hint")} spellcheck=${false} value=${asked.text}
      onInput=${(event) => change({ text: event.currentTarget.value })} onDragOver=${dragged} onDragLeave=${() => setOver(false)} onDrop=${drop}></textarea>
    ${problem && html`<p class="wrong" role="alert">${problem}</p>`}
    <div class="row-actions">
      <label class="playground-file">${t("file")}<input type="file" class="unseen" onChange=${chose} /></label>
      <button type="button" class="quiet" onClick=${() => change(example())}>${t("example")}</button>
      <${CopyCurl} asked=${asked} />
    </div>
  <//>`;
}

function CopyCurl({ asked }) {
  const pruner = useAnswer("/api/settings").value?.settings.mcp_pruner;
  return html`<${Copy} label=${t("curl")} text=${() => curl(pruner, body(asked))} />`;
}

function Result({ asked, answer }) {
  const { stats, annotations, warnings } = answer;
  const texts = answer.text.split("\n");
  const cuts = annotations.map((each) => ({ start: each.original_start_line, end: each.original_end_line, reason: each.reason }));
  const gone = (number) => cuts.some((cut) => cut.start <= number && number <= cut.end);
  const found = new Map(answer.lines.map((line) => [line.line, line]));
  const lines = texts.map((text, at) => ({ ...(found.get(at + 1) ?? { line: at + 1, kept: !gone(at + 1), why: "" }), text }));
  return html`
    <p class="playground-stats" role="status">
      <strong>${t("kept", { n: stats.kept_lines, all: count(stats.original_lines) })}</strong>
      <span>${t("tokens", { before: count(stats.tokens_est_before), after: count(stats.tokens_est_after) })}</span>
      <span class="soft">${duration(answer.took)}</span>
      ${warnings.map((code) => html`<span key=${code} class="badge caution">${warned(code)}</span>`)}
    </p>
    ${cuts.length === 0 && html`<p class="soft">${t(asked.goal ? "nothing_cut" : "no_goal")}</p>`}
    <${Lines} label=${t("result")} lines=${lines} cuts=${cuts} />
  `;
}
