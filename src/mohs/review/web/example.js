/* One example at full size, with what there is to know of it; decide by key, and the next one is already there. */

import { get } from "./api.js";
import { ago, fill, h, name, number, percent, short, title, visible, words } from "./dom.js";
import { decisionWords, differs, face, labels } from "./grid.js";

const AHEAD = 3, KEPT = 60;
const SAID = { accept: "accepted", keep: "kept the label", change: "changed to", exclude: "excluded it", skip: "skipped it", clear: "took the decision back" };

export function createExample(box, { rows, about, act, onClose, onEnd, onMove }) {
  const known = new Map();
  let place = -1, shown = null, before = null, all = false;

  const load = (row) => {
    if (!known.has(row)) {
      known.set(row, get(`api/example?row=${row}`).catch((error) => { known.delete(row); throw error; }));
      if (known.size > KEPT) known.delete(known.keys().next().value);
    }
    return known.get(row);
  };

  const ahead = async () => {
    for (let next = place + 1; next <= place + AHEAD && next < rows.total; next++) {
      const card = await rows.need(next);
      if (!card) return;
      load(card.row).catch(() => {});
      if (about().pictures) new Image().src = `picture/${card.row}/1024`;
    }
  };

  const open = async (to, card) => {
    if (box.hidden) before = document.activeElement;
    place = to;
    box.hidden = false;
    document.body.classList.add("in-example");
    card ??= await rows.need(to);
    if (!card) { close(); return; }
    shown = card;
    draw(card, null);
    onMove(card.row);
    complete(card);
  };

  /* The details come after the example itself, so that the next key need not wait for them. */
  const complete = async (card) => {
    try {
      const details = await load(card.row);
      if (shown?.row === card.row) draw(rows.card(card.row) ?? card, details);
    } catch (error) {
      if (shown?.row === card.row) fill(box.querySelector(".about") ?? box, h("p.error", {}, error.message));
    }
    ahead().catch(() => {});
  };

  const close = () => {
    box.hidden = true;
    shown = null;
    document.body.classList.remove("in-example");
    onClose(place);
    before?.focus?.({ preventScroll: true });
  };

  const move = (step) => {
    const to = place + step;
    if (place < 0) return close();
    if (to >= 0 && to < rows.total) return open(to);
    if (step > 0) { close(); onEnd(); }
  };

  const draw = (card, details) => {
    const decision = card.decision;
    const top = h("header", {},
      h("button.quiet", { type: "button", onclick: close, title: "Back to the grid (Esc)" }, "← Back"),
      h("span.position", {}, place >= 0 ? `${number(place + 1)} of ${number(rows.total)}` : ""),
      h("bdi.title", { title: card.path ?? card.id }, title(card)),
      h("span.space"),
      h("button.quiet.icon", { type: "button", onclick: () => move(-1), title: "Previous (←)", "aria-label": "Previous", disabled: place <= 0 }, "‹"),
      h("button.quiet.icon", { type: "button", onclick: () => move(1), title: "Next (→)", "aria-label": "Next", disabled: place < 0 || place >= rows.total - 1 }, "›"));
    const stage = h("div.stage", {}, big(card, details), details ? neighbors(details) : null);
    const side = h("div.about", {},
      h("div.headline", {}, labels(card), card.chance === undefined || card.chance === null ? null : h("p.chance", {}, h("i.bar", {}, h("b", { style: { width: `${100 * card.chance}%` } })), `${percent(card.chance)} likely wrong`)),
      h("p.tags", {}, card.verdict ? h("span.tag", { style: { "--verdict": about().verdicts[card.verdict]?.color ?? "var(--soft)" }, title: about().verdicts[card.verdict]?.meaning }, card.verdict) : null,
        card.grade ? h("span.tag.plain", { title: "hardness grade, from 1 (easiest) to 10 (hardest)" }, `grade ${card.grade}`) : null,
        decision ? h("span.tag.made", { data: { decision: decision.decision } }, decisionWords(card)) : null),
      card.why ? h("p.why", {}, visible(card.why)) : null,
      details ? [probabilities(card, details), curve(details), opinions(details), values(details)] : h("p.soft", {}, "Loading …"));
    const bar = h("footer", {},
      button("a", "accept", differs(card) ? ["Accept ", h("bdi", {}, name(card.suggested))] : "Accept", () => act("accept"), !differs(card)),
      button("k", "keep", ["Keep ", h("bdi", {}, name(card.label))], () => act("keep")),
      button("l", "change", "Other label …", () => act("change")),
      button("x", "exclude", "Exclude", () => act("exclude")),
      button("s", "skip", "Skip", () => act("skip")),
      button("u", "undo", "Undo", () => act("undo")));
    fill(box, top, h("div.view", {}, stage, side), bar);
    if (!box.contains(document.activeElement)) bar.firstChild.focus({ preventScroll: true });
    box.dataset.row = card.row;
    box.dataset.loaded = details ? "yes" : "";
  };

  const button = (key, kind, told, onclick, disabled = false) => h("button.act", { type: "button", data: { act: kind }, onclick, disabled }, h("kbd", {}, key.toUpperCase()), h("span", {}, told));

  const big = (card, details) => {
    if (about().kind === "images") return face(card, about(), 1024);
    const text = details?.text ?? card.text, fields = details?.fields ?? card.fields;
    if (text) return h("div.face.text", {}, h("bdi", {}, visible(text, true)));
    if (fields?.length) return h("dl.face.fields", {}, fields.map(([key, value]) => h("div", {}, h("dt", {}, visible(key)), h("dd", {}, value === null ? "missing" : short(value)))));
    return face(card, about());
  };

  const neighbors = (details) => (details.neighbors.length ? h("section.near", {},
    h("h3", {}, "Nearest examples", h("span.soft", {}, ` ${details.neighbors.filter((one) => one.label === details.label).length} of ${details.neighbors.length} share its label`)),
    h("div.strip", {}, details.neighbors.map((one) => h("button.neighbor", { type: "button", onclick: () => open(rows.placeOf(one.row), one), title: `similarity ${one.cosine}`, "aria-label": `Neighbor ${title(one)}, ${name(one.label)}` },
      face(one, about(), 160), h("bdi", { class: one.label === details.label ? "same" : one.label === details.suggested ? "theirs" : "" }, name(one.label)),
      one.duplicate ? h("span.twin", { title: "near duplicate" }, "duplicate") : null)))) : null);

  const probabilities = (card, details) => (details.probabilities.length ? h("section.probabilities", {}, h("h3", {}, "Class probabilities"),
    details.probabilities.map(([label, p]) => h("div", { class: label === card.label && differs(card) ? "given" : label === card.suggested ? "suggested" : "" },
      h("bdi", { title: name(label) }, name(label)), h("i.bar", {}, h("b", { style: { width: `${100 * p}%` } })), h("span", {}, percent(p))))) : null);

  const curve = ({ curve: points }) => {
    if (!points.some((p) => p !== null)) return null;
    const width = 260, height = 56, step = width / Math.max(1, points.length - 1);
    const path = points.map((p, i) => (p === null ? "" : `${i && points[i - 1] !== null ? "L" : "M"}${(i * step).toFixed(1)},${((1 - p) * height).toFixed(1)}`)).join("");
    const draw = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    draw.setAttribute("viewBox", `-2 -2 ${width + 4} ${height + 4}`);
    const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
    line.setAttribute("d", path);
    draw.append(line);
    return h("section.curve", {}, h("h3", {}, "Confidence in the label over training"), draw);
  };

  const opinions = ({ history, opinions: now }) => (history.length ? h("section.history", {}, h("h3", {}, "Decisions"),
    history.map((one) => h("p", { class: now.some((each) => each.at === one.at && each.by === one.by) ? "" : "past" }, h("b", {}, visible(one.by)), ` ${SAID[one.decision]} `,
      ["change", "accept"].includes(one.decision) && one.label ? h("bdi", {}, name(one.label)) : null, h("span.soft", {}, ` ${ago(one.at)}`)))) : null);

  const values = (details) => h("details.values", { open: all, ontoggle: (event) => { all = event.target.open; } }, h("summary", {}, "All values"),
    h("dl", {}, Object.entries(details.values).map(([key, value]) => h("div", { title: about().columns.find((one) => one.name === key)?.meaning }, h("dt", {}, words(visible(key))), h("dd", {}, short(value))))));

  return {
    open, close, move,
    get row() { return shown?.row ?? -1; },
    get place() { return place; },
    get isOpen() { return !box.hidden; },
    get card() { return shown; },
    /** Decisions changed: show them, and forget what was fetched before. */
    changed(changes) {
      for (const { row, decision } of changes) {
        known.delete(row);
        if (shown?.row === row) { shown.decision = decision; if (!box.hidden) load(row).then((details) => { if (shown?.row === row) draw(shown, details); }).catch(() => {}); }
      }
    },
  };
}
