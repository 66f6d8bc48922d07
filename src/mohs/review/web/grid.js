/* The grid: only the cards in view exist. Positions are computed, so that ten million rows scroll like ten. */

import { framed, h, name, percent, short, title, visible } from "./dom.js";

const GAP = 10, TALLEST = 8_000_000, AHEAD = 1;
const SHAPES = { text: [300, 176], table: [250, 196], features: [150, 132] };

export function createGrid(box, { rows, about, onOpen, onPick }) {
  const sheet = h("div.sheet", { role: "list" });
  const nothing = h("div.nothing", { hidden: true });
  const made = new Map();
  let size = +(localStorage.getItem("mohs-review-size") || 148), columns = 1, width = 0, height = 0, top = 0, last = 0;
  let cursor = 0, anchor = 0, renewing = false;
  const picked = new Set();
  box.append(sheet, nothing);

  const shape = () => SHAPES[about().kind] ?? [size, size + 44];
  const lines = () => Math.ceil(rows.total / columns);
  const whole = () => lines() * (height + GAP) + GAP;
  const room = () => Math.max(0, whole() - box.clientHeight);

  /* Where the scroll bar cannot be as long as the rows are, small steps move by themselves and long ones in proportion. */
  const scaled = () => whole() > TALLEST;
  const scrolled = () => {
    const at = box.scrollTop;
    if (!scaled()) top = at;
    else if (Math.abs(at - last) < box.clientHeight * 2) top = Math.min(room(), Math.max(0, top + at - last));
    else top = (at / Math.max(1, sheet.offsetHeight - box.clientHeight)) * room();
    last = at;
    draw();
  };

  const layout = () => {
    if (!about() || !box.clientWidth) return;
    const [least, tall] = shape();
    const space = box.clientWidth - GAP;
    columns = Math.max(1, Math.floor(space / (least + GAP)));
    width = Math.floor(space / columns) - GAP;
    height = SHAPES[about().kind] ? tall : width + 44;
    sheet.style.setProperty("height", `${Math.min(whole(), TALLEST)}px`);
    draw();
  };

  const draw = framed(() => {
    const first = Math.max(0, Math.floor(top / (height + GAP)) - AHEAD) * columns;
    const final = Math.min(rows.total, (Math.ceil((top + box.clientHeight) / (height + GAP)) + AHEAD) * columns);
    const shift = scaled() ? box.scrollTop - top : 0;
    for (const [place, element] of made) if (place < first || place >= final) { element.remove(); made.delete(place); }
    for (let place = first; place < final; place++) {
      const card = rows.at(place), key = card ? signature(card, place) : "";
      let element = made.get(place);
      if (!element || element.dataset.key !== key) {
        const held = element === document.activeElement;
        const fresh = card ? cardOf(card, place) : h("article.card.empty", { role: "listitem" });
        fresh.dataset.key = key;
        if (element) element.replaceWith(fresh); else sheet.append(fresh);
        made.set(place, element = fresh);
        if (held) { renewing = true; fresh.focus({ preventScroll: true }); renewing = false; }
      }
      const x = GAP + (place % columns) * (width + GAP), y = GAP + Math.floor(place / columns) * (height + GAP) + shift;
      element.style.setProperty("transform", `translate(${x}px, ${y}px)`);
      element.style.setProperty("width", `${width}px`);
      element.style.setProperty("height", `${height}px`);
    }
    box.dataset.drawn = `${rows.view} ${[...made.values()].filter((one) => one.dataset.key).length}`;
    nothing.hidden = rows.total > 0;
  });

  const signature = (card, place) => `${rows.view} ${card.row} ${JSON.stringify(card.decision)} ${picked.has(card.row)} ${place === cursor} ${size}`;

  const cardOf = (card, place) => {
    const chosen = picked.has(card.row);
    const element = h("article.card", {
      role: "listitem", tabindex: place === cursor ? 0 : -1, data: { row: card.row, place, decision: card.decision?.decision ?? "" },
      "aria-label": `${title(card)}: ${name(card.label)}${differs(card) ? `, suggested ${name(card.suggested)}` : ""}`,
      onclick: (event) => clicked(event, card, place), onfocus: () => { if (cursor !== place && !renewing) { cursor = place; draw(); } },
    },
    face(card, about(), width * devicePixelRatio > 200 ? 320 : 160),
    h("div.caption", {}, labels(card), h("span.odds", { title: "probability that the label is wrong" }, card.chance === undefined ? "" : percent(card.chance))),
    card.decision ? h("p.made", { data: { decision: card.decision.decision } }, made_(card)) : null,
    h("button.tick", { type: "button", "aria-label": "Select", "aria-pressed": String(chosen), tabindex: -1,
      onclick: (event) => { event.stopPropagation(); pick(place, event.shiftKey); } }, chosen ? "✓" : ""));
    if (chosen) element.classList.add("chosen");
    if (place === cursor) element.classList.add("cursor");
    if (card.verdict) element.style.setProperty("--verdict", about().verdicts[card.verdict]?.color ?? "var(--soft)");
    return element;
  };

  const clicked = (event, card, place) => {
    if (event.shiftKey || event.ctrlKey || event.metaKey) { pick(place, event.shiftKey); return; }
    cursor = anchor = place;
    onOpen(place);
  };

  const pick = async (place, range) => {
    const [from, to] = range ? [Math.min(anchor, place), Math.max(anchor, place)] : [place, place];
    const card = await rows.need(place);
    const add = range || !picked.has(card.row);
    for (let each = from; each <= to; each++) {
      const one = await rows.need(each);
      if (one) picked[add ? "add" : "delete"](one.row);
    }
    anchor = cursor = place;
    draw();
    onPick(picked);
  };

  box.addEventListener("scroll", scrolled, { passive: true });
  new ResizeObserver(layout).observe(box);

  return {
    draw, layout, picked,
    get cursor() { return cursor; },
    /** Move the cursor to a position, and scroll it into view. */
    go(place, { focus = true } = {}) {
      cursor = Math.max(0, Math.min(rows.total - 1, place));
      const y = Math.floor(cursor / columns) * (height + GAP);
      if (y < top) this.scrollTo(y);
      else if (y + height + 2 * GAP > top + box.clientHeight) this.scrollTo(y + height + 2 * GAP - box.clientHeight);
      draw();
      if (focus) requestAnimationFrame(() => requestAnimationFrame(() => made.get(cursor)?.focus({ preventScroll: true })));
    },
    scrollTo(y) {
      top = Math.max(0, Math.min(room(), y));
      last = box.scrollTop = scaled() ? (top / Math.max(1, room())) * (TALLEST - box.clientHeight) : top;
    },
    move(key) { this.go(cursor + { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns, Home: -1e9, End: 1e9 }[key]); },
    pick: () => pick(cursor, false),
    clear() { picked.clear(); draw(); onPick(picked); },
    renew() { cursor = anchor = 0; picked.clear(); onPick(picked); top = last = box.scrollTop = 0; layout(); },
    say(...children) { nothing.replaceChildren(...children); },
    resize(to) { size = to; localStorage.setItem("mohs-review-size", String(to)); layout(); },
    get size() { return size; },
  };
}

export const differs = (card) => card.suggested !== null && card.suggested !== undefined && card.suggested !== card.label;

/** The label, and the suggestion where it differs. */
export function labels(card) {
  return differs(card)
    ? h("span.labels", {}, h("bdi.old", { title: name(card.label) }, name(card.label)), " → ", h("bdi.new", { title: name(card.suggested) }, name(card.suggested)))
    : h("span.labels", {}, h("bdi.new", { title: name(card.label) }, name(card.label)));
}

/** What an example looks like: its picture, text, fields, or its label in large letters. */
export function face(card, about, size = 320) {
  if (about.kind === "images") {
    const image = h("img", { src: `picture/${card.row}/${size}`, alt: "", loading: "lazy", decoding: "async", draggable: "false" });
    const frame = h("div.face.picture", {}, image);
    image.addEventListener("load", () => { if (Math.max(image.naturalWidth, image.naturalHeight) <= 64) frame.classList.add("tiny"); });
    image.addEventListener("error", () => frame.replaceChildren(h("span.lost", {}, "no picture")));
    return frame;
  }
  if (card.text) return h("div.face.text", {}, h("bdi", {}, visible(card.text)));
  if (card.fields?.length) {
    return h("dl.face.fields", {}, card.fields.slice(0, 6).map(([key, value]) => h("div", {}, h("dt", {}, visible(key)), h("dd", {}, value === null ? "missing" : short(value)))));
  }
  return h("div.face.letters", {}, h("bdi", {}, title(card)));
}

const DONE = { accept: (card) => ["→ ", h("bdi", {}, name(card.decision.label))], change: (card) => ["→ ", h("bdi", {}, name(card.decision.label))],
  keep: () => ["label kept"], exclude: () => ["excluded"], skip: () => ["skipped"] };
const made_ = (card) => [...(DONE[card.decision.decision]?.(card) ?? []), card.decision.disputed ? h("span.disputed", { title: "Reviewers disagree" }, " ⚑") : null];
export const decisionWords = (card) => made_(card);
