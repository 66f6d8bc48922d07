/* The map beside the grid: what a lasso selects becomes a filter, a click opens the example. */

import { bytes, send } from "./api.js";
import { fill, h, name, title, words } from "./dom.js";
import * as state from "./state.js";

const LEGEND = 24;

export function createMapView(box, { about, rows, onOpen, tell }) {
  let map = null, starting = null, colored = "", masked = null, round = 0;
  const canvas = h("div.canvas"), legend = h("div.legend"), hint = h("p.soft.hint", {}, "Drag to move, scroll to zoom, Shift and drag to select.");
  const select = h("select", { id: "color", "aria-label": "Color", onchange: () => state.set({ color: select.value }, { replace: true }) });
  box.append(h("div.map-tools", {}, h("label", {}, "Color ", select), legend), canvas, hint);

  const choices = () => {
    const { roles, columns } = about();
    const own = [["verdict", "verdict"], ["label", "label"], ["suggested", "suggested label"], ["decision", "decision"], ["chance", "probability of a wrong label"], ["grade", "hardness grade"]].filter(([role]) => role === "decision" || roles[role]);
    const taken = new Set(Object.values(roles));
    return [...own, ...columns.filter((one) => one.kind === "number" && !taken.has(one.name)).map((one) => [one.name, words(one.name)])];
  };

  const colors = async () => {
    const by = state.value("color") || choices()[0][0];
    const data = await bytes(`api/map/colors?by=${encodeURIComponent(by)}`);
    const length = new DataView(data).getUint32(0, true);
    const { palette, names } = JSON.parse(new TextDecoder().decode(new Uint8Array(data, 4, length)));
    return { by, palette, names, color: new Uint8Array(data.slice(4 + length)) };
  };

  const drawLegend = ({ palette, names, color }) => {
    const used = new Set(color);
    fill(legend, names.map((one, i) => (used.has(i) ? h("span", {}, h("i.dot", { style: { background: palette[i] } }), h("bdi", {}, name(one))) : null)).filter(Boolean).slice(0, LEGEND));
  };

  const start = async () => {
    fill(select, choices().map(([key, told]) => h("option", { value: key }, told)));
    const [{ createMap }, points, found] = await Promise.all([import("./map.js"), bytes("api/map"), colors()]);
    const half = points.byteLength / 2;
    map = createMap(canvas, {
      x: new Float32Array(points, 0, half / 4), y: new Float32Array(points, half, half / 4), color: found.color, palette: found.palette,
      onSelect: chosen, onPick: (index) => onOpen(index), onHover: (index) => hover(index),
    });
    select.value = colored = found.by;
    drawLegend(found);
  };

  const chosen = async (indices) => {
    try {
      if (!indices.length) { state.set({ set: "" }); return; }
      const { set } = await send("api/select", indices);
      state.set({ set });
    } catch (error) { tell(error.message, { wrong: true }); }
  };

  const hover = (index) => {
    const card = index >= 0 ? rows.card(index) : null;
    canvas.title = index < 0 ? "" : card ? `${title(card)}: ${name(card.label)}` : `example ${index}`;
  };

  /** Show the map and bring it up to date with the filters; the selection itself is shown as such, not cut out. */
  const refresh = async () => {
    const asked = ++round;
    try {
      await (starting ??= start());
    } catch (error) {
      starting = null;
      fill(canvas, h("p.error", {}, `The map cannot be shown: ${error.message}`));
      return;
    }
    map.resize();
    const by = state.value("color") || choices()[0][0];
    if (by !== colored) {
      const found = await colors();
      if (asked !== round) return;
      map.setColor(found.color, found.palette);
      select.value = colored = by;
      drawLegend(found);
    }
    const asks = state.query({ set: "", sort: "" });
    if (asks !== masked) {
      const mask = asks ? new Uint8Array(await bytes(`api/map/mask?${asks}`)) : null;
      if (asked !== round) return;
      masked = asks;
      map.setVisible(mask);
    }
    if (!state.value("set")) map.select(new Uint32Array(0));
  };

  return { refresh, resize: () => map?.resize() };
}
