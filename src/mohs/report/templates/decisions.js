/* Decisions: one per example, by id; undone step by step; kept in this browser under the data's hash; downloaded as a file. */
"use strict";
mohs.decisions = (() => {
  const { data, store, csv, download } = mohs;
  const KEY = `mohs:decisions:${data.hash}`;
  const KINDS = ["accept", "keep", "change", "exclude"];
  const known = new Set(data.classes);
  const current = new Map();
  const past = [];
  const listeners = [];

  /* Any page on file:// can write there: drop whatever is not a decision on these classes. */
  const sound = (entry) => Array.isArray(entry) && entry.length === 4 && entry.every((part) => typeof part === "string")
    && known.has(entry[1]) && KINDS.includes(entry[2]) && (entry[3] === "" || known.has(entry[3]));
  const kept = store.read(KEY);
  if (Array.isArray(kept)) for (const entry of kept.filter(sound)) current.set(entry[0], entry);

  const changed = () => {
    const saved = store.write(KEY, [...current.values()]);
    for (const listener of listeners) listener(saved);
  };

  /* entries: [id, label, decision, new label]; together they are one step for undo. A null decision removes the old one. */
  const decide = (entries) => {
    if (!entries.length) return;
    past.push(entries.map(([id]) => [id, current.get(id)]));
    for (const entry of entries) if (entry[2] === null) current.delete(entry[0]); else current.set(entry[0], entry);
    changed();
  };
  const undo = () => {
    const step = past.pop();
    if (!step) return null;
    for (const [id, entry] of step) if (entry) current.set(id, entry); else current.delete(id);
    changed();
    return step.map(([id]) => id);
  };
  const rows = () => [...current.values()].map(([id, label, decision, fresh]) => [id, data.hash, label, decision, fresh]);

  return {
    of: (id) => current.get(id),
    get size() { return current.size; },
    get undoable() { return past.length > 0; },
    decide, undo,
    clear: () => decide([...current.values()].map(([id, label]) => [id, label, null, ""])),
    download: () => download("decisions.csv", csv([["id", "data_hash", "label", "decision", "new_label"], ...rows()])),
    onChange: (listener) => listeners.push(listener),
  };
})();
