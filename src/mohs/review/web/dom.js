/* Elements, text and numbers. Everything from the data becomes text nodes: no string is ever parsed as HTML. */

const HIDDEN = /(?![\u200c\u200d])[\p{Cc}\p{Cf}\p{Cn}\p{Co}\p{Cs}\p{Zl}\p{Zp}]/gu;

/** Text with invisible characters made visible: control characters, bidirectional marks, lone surrogates. */
export function visible(text, lines = false) {
  return String(text ?? "").replace(HIDDEN, (sign) => {
    const code = sign.codePointAt(0);
    if (lines && sign === "\n") return sign;
    return code < 32 ? String.fromCodePoint(0x2400 + code) : code === 127 ? "␡" : `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
  });
}

/** An element: h("p.note", {title: "..."}, "text", child, null). Properties that begin with "on" are listeners. */
export function h(name, properties = {}, ...children) {
  const [tag, ...classes] = name.split(".");
  const made = document.createElement(tag || "div");
  if (classes.length) made.className = classes.join(" ");
  for (const [key, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key === "style") for (const [property, setting] of Object.entries(value)) made.style.setProperty(property, setting);
    else if (key === "data") Object.assign(made.dataset, value);
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

export const $ = (id) => document.getElementById(id);
export const fill = (element, ...children) => element.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
export const number = (value) => Number(value).toLocaleString("en");
export const percent = (p) => (p === null || p === undefined ? "" : p > 0.995 ? ">99%" : p < 0.005 ? "<1%" : `${Math.round(p * 100)}%`);
export const words = (name) => name.replaceAll("_", " ");
export const name = (text) => (text === "" || text === null || text === undefined ? "(empty)" : visible(text));

/** A number for reading: four significant digits. */
export function short(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return visible(value);
  return Number.isInteger(value) ? number(value) : Math.abs(value) >= 1e6 || (value && Math.abs(value) < 1e-4) ? value.toExponential(2) : String(+value.toPrecision(4));
}

/** How long ago a time was, in words. */
export function ago(at) {
  const seconds = Math.max(0, (Date.now() - Date.parse(at)) / 1000);
  if (seconds < 60) return "just now";
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  return seconds < 86400 ? `${Math.floor(seconds / 3600)} h ago` : new Date(at).toLocaleDateString();
}

/** The end of a path, or the id. */
export function title(card) {
  const end = card.path ? card.path.replaceAll("\\", "/").replace(/\/+$/, "").split("/").pop() : "";
  return name(end || card.id);
}

/** Call at most once per animation frame. */
export function framed(call) {
  let waiting = 0;
  return () => { waiting ||= requestAnimationFrame(() => { waiting = 0; call(); }); };
}

export function later(call, wait) {
  let timer = 0;
  return (...given) => { clearTimeout(timer); timer = setTimeout(() => call(...given), wait); };
}
