/* What the other scripts share: the page's data, its colors, announcements to screen readers, downloads. */
"use strict";
const mohs = (() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const find = (id) => document.getElementById(id);
  const say = (text) => { find("said").textContent = text; };

  /* A color of the style sheet as the browser resolves it now, light or dark. */
  const color = (name) => {
    const probe = document.createElement("i");
    probe.style.color = `var(--${name})`;
    document.body.append(probe);
    const value = getComputedStyle(probe).color;
    probe.remove();
    return value;
  };

  const make = (tag, text, attributes = {}) => {
    const element = document.createElement(tag);
    if (text !== null && text !== undefined) element.textContent = text;
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return element;
  };

  /* An apostrophe keeps spreadsheets from running a cell as a formula; `mohs apply` removes it. */
  const cell = (value) => {
    const text = value === null || value === undefined ? "" : String(value);
    const guarded = typeof value !== "number" && /^[=+\-@\t\r\n'＝＋－＠]/.test(text) ? `'${text}` : text;
    return `"${guarded.replaceAll('"', '""')}"`;
  };
  const csv = (rows) => `\ufeff${rows.map((row) => row.map(cell).join(",")).join("\r\n")}\r\n`;

  const download = (name, text) => {
    const address = URL.createObjectURL(new Blob([text], { type: "text/csv;charset=utf-8" }));
    const link = make("a", null, { href: address, download: name });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(address), 10000);
  };

  /* Storage may be forbidden, full, or written by another page: do not trust what it holds. */
  const store = {
    read: (key) => { try { return JSON.parse(localStorage.getItem(key)); } catch { return null; } },
    write: (key, value) => { try { localStorage.setItem(key, JSON.stringify(value)); return true; } catch { return false; } },
  };

  const unpack = async (id) => {
    const bytes = Uint8Array.from(atob(find(id).textContent), (sign) => sign.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
  };

  const themes = { "": "system", light: "light", dark: "dark" };
  const listeners = [];
  const setTheme = (name) => {
    if (name) document.documentElement.dataset.theme = name;
    else delete document.documentElement.dataset.theme;
    find("theme").querySelector("span").textContent = themes[name];
    for (const listener of listeners) listener();
  };
  const stored = store.read("mohs:theme");
  setTheme(Object.hasOwn(themes, stored) ? stored : "");
  find("theme").addEventListener("click", () => {
    const names = Object.keys(themes);
    const next = names[(names.indexOf(document.documentElement.dataset.theme ?? "") + 1) % names.length];
    setTheme(next);
    store.write("mohs:theme", next);
    say(`Colors: ${themes[next]}`);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => listeners.forEach((listener) => listener()));

  return { data, find, say, color, make, csv, download, store, unpack, onTheme: (listener) => listeners.push(listener) };
})();
